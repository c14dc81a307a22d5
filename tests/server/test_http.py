"""HTTP: formats, failures, who may ask, pages of other sites, the embedded page in a browser."""

import base64
import io
import json
import pathlib
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request

import pyarrow as pa
import pyarrow.parquet as pq
from conftest import PASSWORD

# Where pictures of the page are kept for people to look at.
SHOWN = pathlib.Path(__file__).resolve().parents[2] / "target" / "test-logs"


def ask(server, path, text=None, **headers):
    """The status, the headers and the body of an answer."""
    data = text.encode() if text is not None else None
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(server.http + path, data=data, headers=named)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def get(server, sql, **headers):
    return ask(server, "/query?q=" + urllib.parse.quote(sql), **headers)


def test_formats_are_what_is_accepted(server):
    sql = "select nth, text, price from kinds order by nth limit 2"
    for accept, body in [
        ("text/csv", 'nth,text,price\n1,"it\'s ""é""",-12.50\n2,,0.01\n'),
        ("text/tab-separated-values", None),
        ("application/x-ndjson", None),
        ("application/json", None),
        ("text/markdown", None),
        ("text/plain", None),
    ]:
        status, headers, found = get(server, sql, Accept=accept)
        assert status == 200 and headers["Content-Type"].startswith(accept), accept
        assert "it's" in found.decode() or "it\\u0027s" in found.decode()
        if body and "," in body:
            assert found.decode().replace('""\n', "\n").replace(',"",', ",,") == body
    rows = json.loads(get(server, sql)[2])
    assert rows[0]["nth"] == 1 and rows[0]["text"] == "it's \"é\""
    arrow = pa.ipc.open_stream(get(server, "select * from many", Accept="application/vnd.apache.arrow.stream")[2]).read_all()
    assert arrow.num_rows == 2_000_000 and arrow["id"][-1].as_py() is not None
    parquet = pq.read_table(io.BytesIO(ask(server, "/query?format=parquet", "select id from many where id < 10")[2]))
    assert sorted(parquet["id"].to_pylist()) == list(range(10))
    assert get(server, sql, Accept="image/png")[0] == 400
    assert ask(server, "/query?format=xlsx", sql)[0] == 400


def test_failures_are_json(server):
    for sql, status, kind in [
        ("select nthh from kinds", 400, "unknown_column"),
        ("selec", 400, "syntax"),
        ("select 1; select 2", 400, "syntax"),
        (" ; ", 400, "syntax"),
        ("select * from '/etc/passwd'", 403, "forbidden"),
        ("create table t as select 1", 403, "forbidden"),
    ]:
        found, headers, body = ask(server, "/query", sql)
        error = json.loads(body)["error"]
        assert (found, error["class"]) == (status, kind), (sql, error)
        assert headers["Content-Type"] == "application/json" and error["sqlstate"]
    error = json.loads(ask(server, "/query", "select\n nthh from kinds")[2])["error"]
    assert error["place"] == {"line": 2, "column": 2, "shown": "   nthh from kinds\n   ^"}
    assert ask(server, "/query")[0] == 400
    assert ask(server, "/nothing")[0] == 404
    # Such a client reads no answer before it has sent all.
    assert ask(server, "/query", "x" * (17 << 20))[0] == 413
    assert ask(server, "/query", "x" * (17 << 20), Origin="https://evil.example")[0] == 403


def test_connections_are_limited(servers, data):
    server = servers(data, "--max-connections", "2")
    host, port = server.http.removeprefix("http://").rsplit(":", 1)
    asked = b"GET /tables HTTP/1.1\r\nHost: localhost\r\n\r\n"
    idle = [socket.create_connection((host, int(port))) for _ in range(4)]
    try:
        for connection in idle[:2]:
            connection.sendall(asked)
            assert connection.recv(12) == b"HTTP/1.1 200"
        # Those who have asked nothing take no place of those who ask, and a server that is busy is well.
        status, _, text = ask(server, "/query", "x" * (1 << 20))
        assert status == 503 and b"--max-connections" in text
        assert ask(server, "/health")[0] == 200
    finally:
        for connection in idle:
            connection.close()
    assert until(lambda: ask(server, "/query", "select 1 as a")[0] == 200)


def until(is_so, seconds=10):
    end = time.monotonic() + seconds
    while not (so := is_so()) and time.monotonic() < end:
        time.sleep(0.05)
    return so


def test_get_changes_nothing(servers, data, tmp_path):
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    server = servers(folder, "--writable")
    assert get(server, "create table made as select 1 as a")[0] == 403
    assert ask(server, "/query", "create table made as select 1 as a")[0] == 200
    assert json.loads(get(server, "select a from made")[2]) == [{"a": 1}]
    assert (folder / "made.arrow").exists() or (folder / "made").exists()


def test_pages_of_other_sites_ask_nothing(server):
    own = server.http
    for headers, status in [
        ({"Origin": own}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-origin"}, 200),
    ]:
        assert ask(server, "/query", "select 1", **headers)[0] == status, headers
    # A name that leads here is not this machine's: its owner could point it anywhere (DNS rebinding).
    assert get(server, "select 1", Host="evil.example")[0] == 403
    assert get(server, "select 1", Host=f"localhost:{own.rsplit(':', 1)[1]}")[0] == 200


def test_what_is_told_beside_answers(server):
    assert ask(server, "/health")[2] == b"ok\n"
    tables = json.loads(ask(server, "/tables")[2])
    assert [table["name"] for table in tables] == ["kinds", "many", "wide"]
    assert {"name": "price", "type": "DECIMAL(15, 2)"} in tables[0]["columns"] or tables[0]["columns"][0]["name"] == "nth"
    get(server, "select count(*) from many")
    metrics = ask(server, "/metrics")[2].decode()
    counted = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in metrics.splitlines() if not line.startswith("#")}
    assert counted['headrace_statements_total{outcome="answered"}'] > 0
    assert counted["headrace_memory_limit_bytes"] == 1e9
    assert counted["headrace_memory_used_bytes"] <= 1e9


def test_the_pages_lines_end_with_a_report(server):
    status, _, body = get(server, "select part, count(*) as n from many group by part", Accept="application/x-headrace+ndjson")
    lines = [json.loads(line) for line in body.splitlines()]
    assert status == 200 and list(lines[0]) == ["columns"] and list(lines[-1]) == ["report"]
    assert sum(len(line["rows"]) for line in lines[1:-1]) == 7
    assert lines[-1]["report"]["rows"] == 7


def test_users_have_passwords(servers, data, users):
    server = servers(data, "--users", str(users))

    def as_user(name, password):
        encoded = base64.b64encode(f"{name}:{password}".encode()).decode()
        return get(server, "select 1 as a", Authorization=f"Basic {encoded}")

    assert get(server, "select 1")[0] == 401 and ask(server, "/")[0] == 401 and ask(server, "/metrics")[0] == 401
    assert ask(server, "/health")[0] == 200
    # A password that was right is known again; a wrong one is not taken for it.
    for _ in range(2):
        assert as_user("ada", PASSWORD)[0] == 200
        for name, password in [("ada", "x"), ("eve", PASSWORD), ("", ""), ("ada", "")]:
            assert as_user(name, password)[0] == 401


def test_https(servers, data, users, certificate):
    cert, key = certificate
    server = servers(data, "--users", str(users), "--tls-certificate", str(cert), "--tls-key", str(key))
    assert server.http.startswith("https://")
    context = ssl.create_default_context(cafile=str(cert))
    encoded = base64.b64encode(f"ada:{PASSWORD}".encode()).decode()
    request = urllib.request.Request(server.http + "/query?q=select%201", headers={"Authorization": f"Basic {encoded}"})
    with urllib.request.urlopen(request, timeout=30, context=context) as answer:
        assert answer.status == 200


def test_the_page_in_a_browser(server, tmp_path):
    """A table, a chart's choice, a failure with its caret and the race, as a user meets them."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        said = []
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(server.http + "/")
        page.locator("textarea").first.fill("select part, count(*) as counted from many group by part order by part")
        page.keyboard.press("Control+Enter")
        page.get_by_text("285,715").or_(page.get_by_text("285715")).first.wait_for(timeout=90_000)
        page.screenshot(path=str(SHOWN / "server-page.png"))
        page.locator("textarea").first.fill("select nthh\nfrom kinds")
        page.keyboard.press("Control+Enter")
        page.get_by_text("nthh").last.wait_for(timeout=90_000)
        page.get_by_text("42703").or_(page.get_by_text("unknown")).first.wait_for(timeout=90_000)
        page.screenshot(path=str(SHOWN / "server-page-failure.png"))
        browser.close()
    # A failed request is told by the browser, too.
    assert not [text for text in said if "400" not in text], said
