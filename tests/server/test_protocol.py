"""What strangers and broken clients send to the ports: the server lives, and nothing stays behind."""

import os
import random
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time
import urllib.request

import psycopg
import pytest
from conftest import PASSWORD, PROGRAM, Server


def packet(kind, body):
    return kind + struct.pack("!i", len(body) + 4) + body


STARTUP = packet(b"", struct.pack("!i", 3 << 16) + b"user\0ada\0\0")


def conversation(port, *sent, seconds=5):
    """All that is answered until the other side ends, or nothing more comes."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as client:
        client.settimeout(seconds)
        answer = b""
        try:
            for part in sent:
                client.sendall(part)
            while data := client.recv(65536):
                answer += data
                if answer.endswith(b"Z\0\0\0\5I") and len(sent) == 1:
                    break
        except (TimeoutError, ConnectionError):
            pass
        return answer


def state(answer):
    """The SQLSTATE in an answer."""
    at = answer.find(b"\0C") if b"SFATAL" in answer or b"SERROR" in answer else -1
    return answer[at + 2 : at + 7].decode() if at >= 0 else None


def alive(server):
    with psycopg.connect(server.dsn) as connection:
        assert connection.execute("select count(*) from kinds").fetchone() == (3,)


def test_garbage_is_answered_or_left(server):
    chance = random.Random(7)
    sockets = server.sockets()
    for nth in range(120):
        junk = chance.randbytes(chance.choice([1, 4, 8, 64, 5000]))
        conversation(server.port, junk, seconds=0.05)
        conversation(server.port, STARTUP, junk, seconds=0.05)
        with socket.create_connection(("127.0.0.1", int(server.http.rsplit(":", 1)[1])), timeout=1) as client:
            client.sendall(junk)
    alive(server)
    until = time.monotonic() + 10
    while server.sockets() > sockets + 2 and time.monotonic() < until:
        time.sleep(0.1)
    assert server.sockets() <= sockets + 2


def test_broken_messages_say_what_is_wrong(server):
    for sent, sqlstate in [
        ([STARTUP, packet(b"Q", b"no end")], "08P01"),
        ([STARTUP, b"!\0\0\0\4"], "08P01"),
        ([STARTUP, packet(b"B", b"\0\0\0\1\0\1\0\5")], "08P01"),
        ([STARTUP, b"Q" + struct.pack("!i", 2**31 - 1)], "54000"),
        ([STARTUP, packet(b"P", b"\0select \xff\0\0\0")], "08P01"),
        ([packet(b"", struct.pack("!i", 3 << 16) + b"\0")], "28000"),
    ]:
        assert state(conversation(server.port, *sent, seconds=3)) == sqlstate, sent
    # Longer than a stranger's may be, of another version, HTTP: nobody is there.
    for sent in [b"\x7f\xff\xff\xff" + b"x" * 100, packet(b"", struct.pack("!i", 2 << 16)), b"GET / HTTP/1.0\r\n\r\n"]:
        assert conversation(server.port, sent, seconds=1) == b""
    alive(server)


def test_errors_of_the_extended_protocol_wait_for_sync(server):
    parse = packet(b"P", b"\0select nthh from kinds\0\0\0")
    bind, execute, sync = packet(b"B", b"\0\0\0\0\0\0\0\0"), packet(b"E", b"\0\0\0\0\0"), packet(b"S", b"")
    good = packet(b"P", b"\0select 7\0\0\0")
    answer = conversation(server.port, STARTUP, parse + bind + execute + sync + good + bind + execute + sync, seconds=3)
    assert answer.count(b"SERROR") == 1 and state(answer) == "42703"
    tail = answer[answer.rindex(b"SERROR") :]
    assert b"Z\0\0\0\5I" in tail and b"SELECT 1\0" in tail and tail.endswith(b"Z\0\0\0\5I")
    for sent, sqlstate in [
        (packet(b"E", b"nothing\0\0\0\0\0"), "34000"),
        (packet(b"D", b"Snothing\0"), "26000"),
        (packet(b"B", b"\0nothing\0\0\0\0\0\0\0"), "26000"),
        (packet(b"P", b"\0select 1; select 2\0\0\0"), "42601"),
        (packet(b"P", b"\0select $1\0\0\0") + packet(b"B", b"\0\0\0\0\0\0\0\0"), "08P01"),
    ]:
        assert state(conversation(server.port, STARTUP, sent + sync, seconds=2)) == sqlstate, sent
    # A newer minor version, and options that nobody knows, are told what is spoken here.
    newer = packet(b"", struct.pack("!hh", 3, 2) + b"user\0ada\0_pq_.new\0x\0\0")
    answer = conversation(server.port, newer, seconds=2)
    assert answer.startswith(b"v") and b"_pq_.new\0" in answer and answer.endswith(b"Z\0\0\0\5I")


def test_a_key_is_needed_to_cancel(server):
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        info = connection.info.backend_pid
        wrong = packet(b"", struct.pack("!iii", 80877102, info, 12345))
        failed = []

        def slow():
            try:
                connection.execute("select count(*) from many a join many b on a.part = b.part where a.id + b.id = -1")
            except psycopg.Error as error:
                failed.append(error)

        running = threading.Thread(target=slow)
        running.start()
        time.sleep(0.5)
        conversation(server.port, wrong, seconds=0.5)
        time.sleep(0.5)
        assert running.is_alive()
        connection.cancel_safe()
        running.join(60)
        assert isinstance(failed[0], psycopg.errors.QueryCanceled)


def running_statements(server):
    text = urllib.request.urlopen(server.http + "/metrics", timeout=10).read().decode()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith('headrace_statements{state="running"}')))


def wait_until(holds, seconds=90):
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_clients_that_are_killed_leave_nothing(server):
    slow = "select count(*) from many a join many b on a.part = b.part where a.id + b.id = -1"
    clients = [
        subprocess.Popen(["psql", "-X", "-h", "127.0.0.1", "-p", str(server.port), "-U", "ada", "headrace", "-c", slow],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(3)
    ]  # fmt: skip
    wait_until(lambda: running_statements(server) == 3)
    for client in clients:
        client.send_signal(signal.SIGKILL)
        client.wait()
    wait_until(lambda: running_statements(server) == 0)
    alive(server)


def test_http_clients_that_go_end_their_statement(server):
    port = int(server.http.rsplit(":", 1)[1])
    body = b"select count(*) from many a join many b on a.part = b.part where a.id + b.id = -1"
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(b"POST /query HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: %d\r\n\r\n%s" % (port, len(body), body))
    wait_until(lambda: running_statements(server) == 1)
    client.close()
    wait_until(lambda: running_statements(server) == 0)


def test_slow_readers_hold_what_they_did_not_read(server):
    before = server.memory_bytes()
    clients = []
    for _ in range(5):
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(STARTUP + packet(b"Q", b"select a.text from wide a, kinds b, kinds c\0"))
        clients.append(client)
    time.sleep(2)
    assert server.memory_bytes() - before < 300_000_000
    alive(server)
    for client in clients:
        client.close()
    wait_until(lambda: running_statements(server) == 0)


def test_users_prove_their_passwords(servers, data, users):
    server = servers(data, "--users", str(users))
    with psycopg.connect(server.dsn, password=PASSWORD) as connection:
        assert connection.execute("select current_user").fetchone() == ("ada",)
    for name, password in [("ada", "wrong"), ("eve", PASSWORD), ("ada", PASSWORD.upper())]:
        with pytest.raises(psycopg.OperationalError) as caught:
            psycopg.connect(server.dsn, user=name, password=password)
        assert "password" in str(caught.value)
    answer = conversation(server.port, STARTUP, packet(b"Q", b"select 1\0"), seconds=2)
    assert state(answer) == "08P01" and b"SELECT" not in answer


@pytest.mark.parametrize("negotiation", ["postgres", "direct"])
def test_tls(servers, data, users, certificate, negotiation):
    cert, key = certificate
    server = servers(data, "--users", str(users), "--tls-certificate", str(cert), "--tls-key", str(key))
    if negotiation == "postgres":
        options = {"sslmode": "verify-full", "sslrootcert": str(cert), "password": PASSWORD}
        with psycopg.connect(server.dsn.replace("127.0.0.1", "localhost"), **options) as connection:
            assert connection.pgconn.ssl_in_use
            assert connection.execute("select count(*) from many").fetchone() == (2_000_000,)
        return
    context = ssl.create_default_context(cafile=str(cert))
    context.set_alpn_protocols(["postgresql"])
    with socket.create_connection(("127.0.0.1", server.port)) as plain:
        with context.wrap_socket(plain, server_hostname="localhost") as client:
            client.sendall(STARTUP)
            assert client.recv(100).startswith(b"R") and client.selected_alpn_protocol() == "postgresql"


def test_nobody_beyond_this_machine_without_a_password(data, users):
    def refused(*options):
        doors = {"--postgres": "off", "--http": "off", "--flight": "off"} | dict(zip(options[::2], options[1::2]))
        command = [PROGRAM, "serve", "--data", data, *(word for pair in doors.items() for word in pair)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        return done.returncode != 0 and "hint: " in done.stderr

    assert refused("--postgres", "0.0.0.0:0") and refused("--http", "0.0.0.0:0")
    assert refused("--http", "0.0.0.0:0", "--users", str(users)) and refused("--flight", "0.0.0.0:0", "--users", str(users))


def test_too_many_connections_are_told_so(servers, data):
    server = servers(data, "--max-connections", "3")
    open_ones = [psycopg.connect(server.dsn) for _ in range(3)]
    with pytest.raises(psycopg.OperationalError) as caught:
        psycopg.connect(server.dsn)
    assert "too many connections" in str(caught.value)
    open_ones.pop().close()
    wait_until(lambda: connects(server))
    for connection in open_ones:
        connection.close()


def connects(server):
    try:
        psycopg.connect(server.dsn).close()
        return True
    except psycopg.OperationalError:
        return False


def test_it_ends_in_peace(data):
    server = Server(data)
    connection = psycopg.connect(server.dsn, autocommit=True)
    done = []
    running = threading.Thread(target=lambda: done.append(connection.execute("select count(*) from many a, kinds b").fetchone()))
    running.start()
    time.sleep(0.05)
    idle = psycopg.connect(server.dsn)
    assert server.stop() == 0
    running.join(60)
    assert done == [(6_000_000,)]
    with pytest.raises(psycopg.OperationalError):
        idle.execute("select 1")


def test_slow_statements_are_in_the_log(servers, data):
    server = servers(data, "--slow", "0")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("select count(*) as logged from many")
    assert '"user":"ada"' in server.line("logged")[0] or server.line('"user":"ada"')


def test_memory_and_time_are_limited(servers, data):
    server = servers(data, "--statement-timeout", "20", memory_limit="64MB")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        assert connection.execute("select count(distinct id) from many").fetchone() == (2_000_000,)
        assert server.memory_bytes() < 64e6 + 300e6
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute("select count(*) from many a join many b on a.part = b.part where a.id + b.id = -1")


def test_what_is_written_stays(data, tmp_path):
    import shutil

    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    server = Server(folder, "--writable")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        cursor = connection.execute("create table made as select id, part from many where id < 100")
        assert cursor.statusmessage.startswith("CREATE TABLE") and cursor.rowcount in (-1, 0)
        connection.execute("create table held (a bigint)")
        assert connection.execute("insert into held values (1000), (1001)").statusmessage == "INSERT 0 2"
        connection.execute("insert into made select id + 1000, part from many where id < 5")
        assert connection.execute("update made set part = 0 where id > 1000").statusmessage == "UPDATE 4"
        assert connection.execute("delete from made where id >= 1003").statusmessage == "DELETE 2"
        connection.execute("create view shown as select count(*) as n from made where id < 1000")
        with psycopg.connect(server.dsn) as other:
            assert other.execute("select n from shown").fetchone() == (100,)
        connection.execute(f"copy (select 1 as a) to '{folder}/out.csv'")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(f"copy (select 1 as a) to '{tmp_path}/beyond.csv'")
        assert not os.path.exists(tmp_path / "beyond.csv")
    notices = []
    with psycopg.connect(server.dsn) as connection:
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        connection.execute("create table undone as select 1 as a")
        connection.rollback()
    assert any("nothing is undone" in notice for notice in notices)
    assert server.stop() == 0
    server = Server(folder)
    with psycopg.connect(server.dsn) as connection:
        assert connection.execute("select count(*) from made").fetchone() == (103,)
        assert connection.execute("select sum(a) from held").fetchone() == (2001,)
        assert connection.execute("select n from shown").fetchone() == (100,)
    assert server.stop() == 0
