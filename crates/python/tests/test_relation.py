"""Relations compose, are lazy, and are read in many ways."""

import pytest

import headrace


@pytest.fixture
def numbers(con):
    return con.sql("select value as n, value % 3 as k from range(10)")


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda r: r.filter("n > 7"), [(8, 2), (9, 0)]),
        (lambda r: r.where("n > 8"), [(9, 0)]),
        (lambda r: r.select("n * 2 as d").limit(2), [(0,), (2,)]),
        (lambda r: r.project("k").limit(1), [(0,)]),
        (lambda r: r.aggregate("sum(n) as s"), [(45,)]),
        (lambda r: r.aggregate("count(*) as c", by="k").order("k"), [(0, 4), (1, 3), (2, 3)]),
        (lambda r: r.order("n desc").limit(1), [(9, 0)]),
        (lambda r: r.sort("n").limit(1, offset=4), [(4, 1)]),
        (lambda r: r.select("k").distinct().order("k"), [(0,), (1,), (2,)]),
        (lambda r: r.limit(1).union(r.limit(1)), [(0, 0), (0, 0)]),
        (lambda r: r.select("k").except_(r.select("k").filter("k > 0")), [(0,)]),
        (lambda r: r.select("k").intersect(r.select("n")).order("k"), [(0,), (1,), (2,)]),
        (lambda r: r.join(r.filter("n = 4"), "n").select("l.k", "r.k").limit(3), [(1, 1)]),
        (lambda r: r.join(r.filter("n = 4"), "l.n = r.n + 1").select("l.n"), [(5,)]),
        (lambda r: r.join(r.filter("n = 4"), "n", how="anti").aggregate("count(*) as c"), [(9,)]),
        (lambda r: r.join(r.filter("n = 4"), "n", how="left").aggregate("count(r.k) as c"), [(1,)]),
    ],
)
def test_relations_compose(numbers, made, expected):
    assert made(numbers).fetchall() == expected


@pytest.mark.parametrize("query", ["select value as n from range(5) order by n desc", "from range(5) order by value desc -- so"])
def test_an_order_holds_until_a_limit(con, query):
    assert con.sql(query).limit(2).fetchall() == [(4,), (3,)]
    assert con.sql(query).limit(2, offset=1).fetchall() == [(3,), (2,)]
    assert repr(con.sql(query)).index("4") < repr(con.sql(query)).index("0")


def test_nothing_runs_before_it_is_asked(con):
    con.sql("select 1 / 0 as x")
    con.sql("select value from range(1000000000000)")
    assert con.sql("select value from range(1000000000000)").columns == ["value"]


def test_names_and_types(con):
    relation = con.sql("select 1::int as a, 'x' as b, 1.5::decimal(9,2) as c, now() as d")
    assert relation.columns == ["a", "b", "c", "d"]
    assert relation.types[:3] == ["INT", "VARCHAR", "DECIMAL(9, 2)"]
    assert relation.types[3].startswith("TIMESTAMP")


def test_rows_are_fetched_on(numbers):
    assert numbers.fetchone() == (0, 0)
    assert numbers.fetchmany(2) == [(1, 1), (2, 2)]
    assert len(numbers.fetchall()) == 7
    assert len(numbers.fetchall()) == 10
    assert len(list(numbers)) == 10 == numbers.count()


def test_the_end_is_none(con):
    relation = con.sql("select 1")
    assert [relation.fetchone(), relation.fetchone(), relation.fetchone()] == [(1,), None, None]


def test_kept_rows_stay(con):
    con.sql("create table t as select 1 as a")
    kept = con.sql("select * from t").execute()
    con.sql("drop table t")
    assert kept.fetchall() == kept.fetchall() == [(1,)]
    assert kept.filter("a = 1").fetchall() == [(1,)]
    assert kept.columns == ["a"]


def test_relations_in_variables_are_tables(con):
    big = con.sql("select value as v from range(100)").filter("v >= 90")
    assert con.sql("select count(*) from big").fetchone() == (10,)
    assert con.sql("with x as (select min(v) as m from big) select m from x").fetchone() == (90,)
    recursive = "with recursive x as (select 1 as n union all select n + 1 from x where n < 3) select count(*) from x, big"
    assert con.sql(recursive).fetchone() == (30,)


def test_a_table_of_the_connection_comes_before_a_variable(con):
    con.sql("create table t as select 'table' as a")
    t = con.sql("select 'variable' as a")
    assert con.sql("select a from t").fetchone() == ("table",)
    assert t.fetchone() == ("variable",)


def test_relations_of_two_connections_do_not_mix(con):
    with pytest.raises(headrace.InterfaceError, match="two connections"):
        con.sql("select 1 as a").union(headrace.connect().sql("select 1 as a"))


def test_a_relation_becomes_a_table(con):
    con.sql("select 5 as a").create("five")
    assert con.table("five").fetchone() == (5,)
    with pytest.raises(headrace.Error):
        con.sql("select 5 as a").create("five")


def test_it_is_shown(con, capsys):
    relation = con.sql("select value as a, NULL as b from range(100)")
    relation.show(rows=3)
    shown = capsys.readouterr().out
    assert "│ a" in shown and "(the first 3 rows)" in shown
    assert "19" in repr(relation) and "first 20 rows" in repr(relation)
    assert "<td>0</td><td><i>NULL</i></td>" in relation._repr_html_()
    assert "&lt;b&gt;" in con.sql("select '<b>' as x")._repr_html_()


def test_plan_and_report(con, folder):
    con.add(folder)
    con.table("trips").write(folder / "arrows.arrow")
    con.add(folder / "arrows.arrow")
    relation = con.sql("select city, sum(km) from arrows group by city")
    assert "PipelineExec" in relation.explain()
    assert "ran on cpu" in relation.explain(analyze=True)
    report = relation.report()
    assert (report["rows"], report["processor"], len(report["pipelines"])) == (2, "cpu", 1)


def test_forbidden_fallback_has_its_own_error(folder):
    con = headrace.connect(processor="cuda", fallback="forbid")
    con.read_csv(folder / "trips.csv").write(folder / "t.arrow")
    con.add(folder / "t.arrow")
    try:
        con.sql("select sum(km) from t").fetchall()
    except headrace.FallbackError as error:
        assert error.kind == "fallback"
    else:
        assert con.sql("select sum(km) from t").report()["processor"] == "cuda"


@pytest.mark.parametrize("name", ["pandas", "polars", "torch", "pyarrow", "numpy"])
def test_a_library_that_is_missing_is_named(con, monkeypatch, name):
    monkeypatch.setitem(__import__("sys").modules, name, None)
    methods = {"pandas": "df", "polars": "pl", "torch": "torch", "pyarrow": "arrow", "numpy": "numpy"}
    with pytest.raises(headrace.InterfaceError, match=f"pip install {name}"):
        getattr(con.sql("select 1 as a"), methods[name])()


@pytest.mark.parametrize(
    "query",
    ["select 1 as a -- said", "select 1 as a;", "select 1 as a; -- said", "select 1 as a /* said */ ;", "(select 1 as a)", "from one -- x"],
)
def test_what_stands_behind_a_query_does_no_harm(con, tmp_path, query):
    con.sql("create table one as select 1 as a")
    relation = con.sql(query)
    assert relation.filter("a = 1 -- yes").limit(1).fetchall() == [(1,)]
    assert relation.union(relation).count() == 2
    assert "1" in repr(relation) and relation.write(tmp_path / "x.csv") == 1
    assert con.sql("select * from relation").fetchall() == [(1,)]
    assert relation.order("a -- so").limit(1).fetchall() == [(1,)]
    assert relation.select("a -- this", "a + 1 -- that").fetchall() == [(1, 2)]
    assert relation.aggregate("count(*) -- all", by="a -- each").fetchall() == [(1, 1)]


def test_two_statements_are_refused(con):
    with pytest.raises(headrace.ParserError, match="2 statements"):
        con.sql("select 1; select 2")
    with pytest.raises(headrace.ParserError, match="no statement"):
        con.sql(" -- nothing")


def test_statements_take_relations(con, tmp_path):
    r = con.sql("select 1 as a union all select 2")
    con.sql("create table t as select * from r")
    con.sql("insert into t select a + 10 from r")
    assert con.table("t").order("a").fetchall() == [(1,), (2,), (11,), (12,)]
    con.sql(f"copy (select * from r) to '{tmp_path / 'r.csv'}'")
    assert con.sql("explain select * from r").fetchall()
    assert con.sql("describe r").fetchall()
    assert con.sql("with/*x*/ y as (select * from r) select count(*) from y").fetchone() == (2,)
    with pytest.raises(headrace.InterfaceError, match="lasts longer"):
        con.sql("create view v as select * from r")


def test_no_table_of_a_user_is_hidden(con):
    kept = con.sql("select 42 as a").execute()
    for name in ("t", "r", "l", "kept_1", "given_1"):
        con.register(name, {"a": [7]})
        assert con.sql(f"select kept.a, x.a from kept, {name} as x").fetchall() == [(42, 7)]
        assert kept.filter(f"a - 35 in (select a from {name})").fetchall() == [(42,)]


def test_relations_of_another_connection_are_refused(con):
    other = headrace.connect().sql("select 1 as a")
    with pytest.raises(headrace.InterfaceError, match="another connection"):
        con.sql("select * from other")
    assert other.fetchone() == (1,)


def test_columns_of_one_name_are_shown(con):
    relation = con.sql("select 1 as a, 2 as a")
    assert repr(relation) and relation._repr_html_().count("<th>a</th>") == 2


def test_names_with_blanks(con, tmp_path):
    a = con.sql('select 1 as "A b", 5 as c')
    assert a.join(a, ["A b"]).select('l.c + r.c').fetchall() == [(10,)]
    assert a.write(tmp_path / "parts", format="parquet", partition_by=["A b"]) == 1


def test_a_failure_is_no_end(con):
    bad = con.sql("select 1 % (value - 50000) as x from range(100000)")
    rows = con._session.run(bad.sql, {})
    for _ in range(3):
        with pytest.raises(headrace.DataError):
            rows.fetch()
    for _ in range(2):
        with pytest.raises(headrace.DataError):
            bad.fetchmany(1_000_000)


def test_looking_runs_nothing_twice(con):
    calls = []
    con.create_function("seen", lambda x: calls.append(len(x)) or x, ["BIGINT"], "BIGINT", stable=False)
    assert len(list(con.sql("select seen(value) from range(10)"))) == 10
    assert sum(calls) == 10
    assert con.sql("select 1 where false")


def test_a_long_chain_is_refused_with_a_remedy(con):
    relation = con.sql("select 1 as a")
    for _ in range(30):
        relation = relation.filter("a = 1")
    assert relation.fetchall() == [(1,)]
    for _ in range(300):
        relation = relation.filter("a = 1")
    with pytest.raises(headrace.NotSupportedError, match="execute"):
        relation.fetchall()
