"""Notebooks and terminals."""

import subprocess
import sys

import pytest

import headrace


def test_a_notebook_runs(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    cells = [
        "%load_ext headrace",
        "%headrace select 6 * 7 as answer",
        "df = {'a': [1, 2, 3]}",
        "%%headrace big\nselect a from df where a > 1",
        "big.fetchall()",
        "import headrace; headrace.sql('select * from range(3)')",
        "%%headrace\nselect missing from df",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = nbclient.NotebookClient(book, timeout=120, kernel_name="python3", allow_errors=True)
    client.execute(cwd=str(tmp_path))
    outputs = [cell["outputs"] for cell in book.cells]
    shown = outputs[1]
    assert any("<td>42</td>" in output.get("data", {}).get("text/html", "") for output in shown)
    assert any("1 row," in output.get("text", "") for output in shown)
    assert outputs[4][0]["data"]["text/plain"] == "[(2,), (3,)]"
    assert "<td>2</td>" in outputs[5][0]["data"]["text/html"]
    assert outputs[6][-1]["ename"] == "CatalogError"


def test_progress_is_told(con):
    told = []
    rows = con._session.run("select count(*) from range(3000000000) a where a.value % 7 = 3", {}, told.append)
    rows.fetch()
    if told:
        assert {"seconds", "bytes", "rows", "rows_total"} <= set(told[0])


def test_progress_that_raises_ends_the_statement(con):
    def stop(progress):
        raise StopIteration("enough")

    rows = con._session.run("select count(*) from range(200000000000) a where a.value % 7 = 3", {}, stop)
    with pytest.raises(StopIteration, match="enough"):
        rows.fetch()


def test_progress_is_a_bar_in_a_notebook():
    from headrace import _progress

    assert _progress.of(False) is None
    assert _progress.share({"rows": 5, "rows_total": 0}) == 0.0
    assert _progress.share({"rows": 5, "rows_total": 10}) == 0.5


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["-c", "select 6 * 7 as answer"], 0, "42"),
        (["--version"], 0, headrace.__version__),
        (["-c", "selec"], 1, ""),
        (["--no-such-flag"], 2, ""),
    ],
)
def test_the_command_line_is_there(words, code, text):
    done = subprocess.run([sys.executable, "-m", "headrace", *words], capture_output=True, text=True)
    assert done.returncode == code and text in done.stdout
    assert (done.stderr != "") == (code != 0) or code == 0
