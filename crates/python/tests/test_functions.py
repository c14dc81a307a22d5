"""Python functions in SQL."""

import pytest

import headrace

pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.compute")


def test_a_function_is_given_columns(con):
    seen = []

    def twice(values):
        seen.append(len(values))
        return pc.multiply(values, 2)

    con.create_function("twice", twice, ["BIGINT"], "BIGINT")
    assert con.sql("select sum(twice(value)) from range(100000)").fetchone() == (9999900000,)
    assert sum(seen) == 100_000 and len(seen) < 1000


def test_a_decorator_makes_one(con):
    @headrace.udf(["VARCHAR", "INT"], "VARCHAR", name="repeated", connection=con)
    def anything(texts, counts):
        return [text.as_py() * count.as_py() for text, count in zip(texts, counts)]

    assert con.sql("select repeated('ab', 2)").fetchone() == ("abab",)
    assert anything(pa.array(["x"]), pa.array([3])) == ["xxx"]


def test_one_that_is_defined_again_is_the_new_one(con):
    for factor in (2, 3):
        con.create_function("times", lambda values, by=factor: pc.multiply(values, by), ["BIGINT"], "BIGINT")
        for _ in range(2):
            assert con.sql("select times(1)").fetchone() == (factor,)


@pytest.mark.parametrize("made", ["array", "chunked", "list", "numpy", "scalar", "pandas"])
def test_what_it_may_return(con, made):
    def function(values):
        if made == "numpy":
            return values.to_numpy() + 1
        if made == "pandas":
            return pytest.importorskip("pandas").Series(values.to_pandas() + 1)
        if made == "scalar":
            return 1
        plus = pc.add(values, 1)
        return {"array": plus, "chunked": pa.chunked_array([plus]), "list": plus.to_pylist()}[made]

    con.create_function("f", function, ["BIGINT"], "BIGINT")
    expected = 3 if made == "scalar" else 6
    assert con.sql("select sum(f(value)) from range(3)").fetchone() == (expected,)


def test_its_exception_is_raised_as_it_is(con):
    def bad(values):
        raise LookupError("not today")

    con.create_function("bad", bad, ["BIGINT"], "BIGINT")
    with pytest.raises(LookupError, match="not today"):
        con.sql("select bad(value) from range(10)").fetchall()


def test_it_must_answer_for_each_row(con):
    con.create_function("short", lambda values: [1], ["BIGINT"], "BIGINT")
    with pytest.raises(headrace.Error, match="given 10 rows, and returned 1"):
        con.sql("select short(value) from range(10)").fetchall()


def test_an_unstable_one_is_called_for_each_query(con):
    calls = []
    con.create_function("now_and_then", lambda: calls.append(1) or 5, [], "BIGINT", stable=False)
    assert con.sql("select now_and_then()").fetchone() == (5,)
    assert con.sql("select now_and_then()").fetchone() == (5,)
    assert len(calls) >= 2


def test_types_are_sql_types(con):
    con.create_function("f", lambda x: x, ["DECIMAL(9, 2)"], "DECIMAL(9, 2)")
    assert con.sql("select f(1.5)").types == ["DECIMAL(9, 2)"]
    with pytest.raises(headrace.Error):
        con.create_function("g", lambda x: x, ["POTATO"], "BIGINT")


@pytest.mark.parametrize(("made", "result"), [(["abc"], "BIGINT"), ([300], "TINYINT")])
def test_a_value_of_another_type_is_an_error(con, made, result):
    con.create_function("odd", lambda values: made, ["BIGINT"], result)
    with pytest.raises(headrace.Error, match=r"odd\(\) returned"):
        con.sql("select odd(value) from range(1)").fetchall()


def test_a_function_may_ask_headrace(con):
    con.create_function("asks", lambda values: [con.sql("select 5").fetchone()[0]] * len(values), ["BIGINT"], "BIGINT")
    assert con.sql("select sum(asks(value)) from range(100)").fetchone() == (500,)


def test_a_type_is_one_type(con):
    with pytest.raises(headrace.Error):
        con.create_function("f", lambda x: x, ["BIGINT) , (select 1"], "BIGINT")
