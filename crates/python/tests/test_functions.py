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


def test_a_cuda_function_is_one_of_sql(con):
    @headrace.cuda_function(twin="a * 2 + b", connection=con)
    def Mixed(a: "BIGINT", b: "int") -> "bigint":
        """return a * 2 + b;"""

    assert con.sql("select mixed(20, 2), MIXED(null, 1)").fetchone() == (42, None)
    numbers = con.sql("select value as n from range(10)")
    assert numbers.filter("mixed(n, 1) > 5").aggregate("sum(mixed(n, 1)) as s").fetchone() == (91,)
    with pytest.raises(headrace.InterfaceError, match="call it in a query"):
        Mixed(1, 2)
    # Defined again it is the new one, and the builder makes the same.
    con.create_cuda_function("mixed", "return a - b;", {"a": "bigint", "b": "int"}, "bigint", twin="a - b")
    assert con.sql("select mixed(20, 2)").fetchone() == (18,)
    con.sql("drop function mixed")
    with pytest.raises(headrace.CatalogError):
        con.sql("select mixed(20, 2)").fetchone()


def test_annotations_may_be_put_off():
    lines = [
        "from __future__ import annotations",
        "import headrace",
        "con = headrace.connect(processor='cpu')",
        "@headrace.cuda_function(source='return v[1];', twin='v[2]', connection=con)",
        "def middle(v: 'double[3]') -> \"double\": ...",
        "assert con.sql('select middle([1, 2.5, 3])').fetchone() == (2.5,)",
        "def number(n: int) -> 'bigint': 'return n;'",
        "try:",
        "    headrace.cuda_function(connection=con)(number)",
        "except headrace.InterfaceError as error:",
        "    assert 'parameter n of number() is annotated int, and a type of SQL is wanted' in str(error), error",
        "else:",
        "    raise AssertionError",
    ]
    exec(compile("\n".join(lines), "<test>", "exec", dont_inherit=True), {})


def test_what_is_no_cuda_function_is_told(con):
    def refused(cause, function, error=headrace.Error, **given):
        with pytest.raises(error, match=cause):
            headrace.cuda_function(connection=con, **given)(function)

    def typed(n: int) -> "bigint":
        "return n;"

    def bare(n) -> "bigint":
        "return n;"

    def nothing(n: "int"):
        "return n;"

    def silent(n: "int") -> "int": ...

    def stars(*n: "int") -> "int":
        "return 1;"

    def usual(n: "int" = 1) -> "int":
        "return 1;"

    wrong = headrace.InterfaceError
    refused("parameter n of typed.. is annotated <class 'int'>, and a type of SQL is wanted", typed, wrong)
    refused("parameter n of bare.. is not annotated", bare, wrong)
    refused("what nothing.. returns is not annotated", nothing, wrong)
    refused("no statements in CUDA", silent, wrong)
    refused("without defaults and stars", stars, wrong)
    refused("without defaults and stars", usual, wrong)

    def fine(n: "int") -> "int":
        "return n;"

    refused("TWIN", fine, twin="missing + 1")
    refused("which cannot be replaced", fine, name="abs")
    refused("no name of C", fine, name="a b")


@pytest.mark.parametrize("text", ["bigint, b int", "bigint) returns int", "bigint -- ", "bigint /*", "bigint twin 'a'", "", "potato", "a; drop table t"])
def test_a_type_of_a_cuda_function_is_one_type(con, text):
    con.sql("create table t as select 1 as a")
    fine = {"name": "f", "source": "return 1;", "arguments": {"a": "bigint"}, "returns": "bigint"}
    for wrong in ({"arguments": {"a": text}}, {"returns": text}):
        if text == "bigint -- ":
            con.create_cuda_function(**{**fine, **wrong})
            continue
        with pytest.raises(headrace.Error, match="is no type of SQL|potato"):
            con.create_cuda_function(**{**fine, **wrong})
    assert con.sql("select a from t").fetchall() == [(1,)]


def test_nothing_in_a_cuda_function_ends_its_text(con):
    """Quotes and dollars in names and statements are theirs: there is no statement that they could end."""
    source = "const char* s = \"it's $$ twin 'x' $body$ ;\"; // '; drop table t; --\nreturn n;"
    con.sql("create table t as select 1 as a")
    con.create_cuda_function("f", source, {"n": "int"}, "bigint", twin="n + octet_length('it''s $$')")
    assert con.sql("select f(1)").fetchone() == (8,)
    for name in ["f\"(n int) returns int language cuda as '' --", "f; drop table t", "f'$$"]:
        with pytest.raises(headrace.Error, match="no name of C"):
            con.create_cuda_function(name, source, {"n": "int"}, "bigint")
        with pytest.raises(headrace.Error, match="no name of C"):
            con.create_cuda_function("g", source, {name: "int"}, "bigint")
    assert con.sql("select a from t").fetchall() == [(1,)]


def test_a_compilers_lines_are_the_users(con, nvrtc):
    with pytest.raises(headrace.ProgrammingError) as raised:

        @headrace.cuda_function(connection=con)
        def wrong(n: "int") -> "int":
            """
            int twice = 2 * n;
            return twicee;
            """

    text = raised.value.cause
    assert "wrong() does not compile" in text and "(3): error" in text and "return twicee;" in text, text
    begins = test_a_compilers_lines_are_the_users.__code__.co_firstlineno + 5
    assert raised.value.hint.endswith(f"the docstring of wrong() begins: {__file__}:{begins}"), raised.value.hint
    with pytest.raises(headrace.ProgrammingError) as raised:
        con.create_cuda_function("wrong", "return 1 +;", {"n": "int"}, "int")
    assert "(1): error" in raised.value.cause and raised.value.hint.endswith("that in which source begins")
    with pytest.raises(headrace.CatalogError):
        con.sql("select wrong(1)").fetchone()
