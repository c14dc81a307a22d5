"""Values go in and come out as what they are."""

import datetime as dt
import decimal
import math
import uuid

import pytest

import headrace

D = decimal.Decimal
UTC = dt.timezone.utc

VALUES = [
    None,
    True,
    False,
    0,
    -1,
    2**31,
    2**63 - 1,
    -(2**63),
    D(10**30),
    1.5,
    -0.1,
    1e300,
    5e-324,
    math.inf,
    -math.inf,
    "",
    "it's",
    "é日本 \n\t\\ \" $1 ? -- /* */",
    "a" * 100_000,
    b"",
    b"\x00\xff",
    D("1.50"),
    D("-0.001"),
    D("12345678901234567890.123"),
    dt.date(2024, 2, 29),
    dt.date(1, 1, 1),
    dt.date(9999, 12, 31),
    dt.time(11, 30, 5, 250_000),
    dt.datetime(2024, 6, 1, 11, 30, 5, 250_000),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(2024, 6, 1, 11, 30, tzinfo=UTC),
    dt.timedelta(days=3, seconds=7, microseconds=5),
    dt.timedelta(days=-1, seconds=1),
    [1, 2, 3],
    [None, "x"],
    [[1], [2, 3]],
    {"a": 1, "b": "x"},
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:40])
def test_a_value_comes_back(con, value):
    (found,) = con.sql("select ? as v", [value]).fetchone()
    assert found == value
    if value is not None:
        assert type(found) is type(value)


def test_an_integer_of_any_length_is_exact(con):
    for digits in (19, 38, 60, 76):
        value = 10**digits - 7
        assert con.sql("select $1", [value]).fetchone() == (value,)


def test_nan_is_nan(con):
    assert math.isnan(con.sql("select ?", [math.nan]).fetchone()[0])


def test_a_uuid_is_a_text(con):
    value = uuid.uuid4()
    assert con.sql("select ?", [value]).fetchone() == (str(value),)


def test_values_of_numpy(con):
    np = pytest.importorskip("numpy")
    values = [np.int32(5), np.float64(0.5), np.bool_(True), np.str_("x")]
    assert con.sql("select ?, ?, ?, ?", values).fetchone() == (5, 0.5, True, "x")


def test_moments_of_numpy_and_pandas(con):
    np = pytest.importorskip("numpy")
    pd = pytest.importorskip("pandas")
    moment = np.datetime64("2020-01-01T00:00:00.123456789")
    assert con.sql("select cast(? as varchar)", [moment]).fetchone()[0].endswith("00.123456789")
    assert con.sql("select ?", [np.datetime64("2020-01-01")]).fetchone() == (dt.datetime(2020, 1, 1),)
    assert con.sql("select ?", [np.timedelta64(1_000_000_000, "ns")]).fetchone() == (dt.timedelta(seconds=1),)
    assert con.sql("select cast(? as varchar)", [pd.Timestamp(1)]).fetchone()[0].endswith("00.000000001")
    missing = [np.datetime64("NaT"), pd.NaT, pd.NA]
    assert con.sql("select ?, ?, ?", missing).fetchone() == (None, None, None)


def test_classes_of_users_are_no_sql(con):
    import enum

    class Colour(int, enum.Enum):
        RED = 7

        def __repr__(self):
            return "t.a"

    class Moment(dt.datetime):
        def isoformat(self, *_):
            return "2020-01-01' AS TIMESTAMP), (select 42) --"

    class Number(D):
        def __format__(self, how):
            return "1' AS DECIMAL), (select 42) --"

    class Text(str):
        def replace(self, *_):
            return "' || 'x"

    values = [Colour.RED, Moment(2024, 1, 2), Number("1.5"), Text("it's")]
    assert con.sql("select ?, ?, ?, ?", values).fetchall() == [(7, dt.datetime(2024, 1, 2), D("1.5"), "it's")]


def test_values_without_an_end_are_refused(con):
    deep = []
    for _ in range(100_000):
        deep = [deep]
    endless = []
    endless.append(endless)
    for value in (deep, endless):
        with pytest.raises(headrace.DataError, match="lists within lists"):
            con.sql("select ?", [value])


def test_values_beyond_their_class_are_texts_or_errors(con):
    zoned = "select arrow_cast(timestamp '9999-12-31 23:00:00', 'Timestamp(Microsecond, Some(\"Asia/Tokyo\"))')"
    assert isinstance(con.sql(zoned).fetchone()[0], (str, dt.datetime))
    assert isinstance(con.sql("select interval '2000000000 days'").fetchone()[0], str)
    with pytest.raises(headrace.DataError, match="DATE"):
        con.sql("select arrow_cast(2147483647, 'Date32')").fetchall()


def test_parameters_by_number_and_by_name(con):
    assert con.sql("select $2, $1, $2", ["a", "b"]).fetchone() == ("b", "a", "b")
    assert con.sql("select ?2, ?1", ["a", "b"]).fetchone() == ("b", "a")
    assert con.sql("select $low + $high", {"low": 1, "high": 2}).fetchone() == (3,)


@pytest.mark.parametrize(
    ("query", "params"),
    [
        ("select ?", []),
        ("select ?, ?", [1]),
        ("select ?", [1, 2]),
        ("select $1", {"a": 1}),
        ("select $a", {"b": 1}),
        ("select ?, $1", [1]),
        ("select $0", [1]),
    ],
)
def test_parameters_and_values_must_agree(con, query, params):
    with pytest.raises(headrace.ProgrammingError):
        con.sql(query, params)


def test_what_is_no_value_is_refused(con):
    with pytest.raises(TypeError, match="object"):
        con.sql("select ?", [object()])


@pytest.mark.parametrize("text", ["'; drop table t; --", "\\'; --", "$1", "?", "\x00"])
def test_no_value_is_a_statement(con, text):
    con.sql("create table t as select 1 as a")
    assert con.sql("select ? as v", [text]).fetchone() == (text,)
    assert con.tables() == ["t"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("cast(7 as tinyint)", 7),
        ("cast(7 as smallint)", 7),
        ("cast(7 as int unsigned)", 7),
        ("cast(18446744073709551615 as bigint unsigned)", 2**64 - 1),
        ("cast(0.5 as real)", 0.5),
        ("1.10", 1.1),
        ("cast(1.1 as decimal(9, 2))", D("1.10")),
        ("arrow_cast('x', 'LargeUtf8')", "x"),
        ("arrow_cast('x', 'Utf8View')", "x"),
        ("arrow_cast('x', 'Dictionary(Int32, Utf8)')", "x"),
        ("arrow_cast(X'0102', 'LargeBinary')", b"\x01\x02"),
        ("arrow_cast('2024-01-01', 'Date64')", dt.date(2024, 1, 1)),
        ("arrow_cast(0, 'Timestamp(Second, None)')", dt.datetime(1970, 1, 1)),
        ("arrow_cast(-1, 'Timestamp(Nanosecond, None)')", dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)),
        ("arrow_cast(5, 'Duration(Millisecond)')", dt.timedelta(milliseconds=5)),
        ("interval '2 days 3 hours'", dt.timedelta(days=2, hours=3)),
        ("map(['a', 'b'], [1, 2])", {"a": 1, "b": 2}),
        ("arrow_cast(1.5, 'Float16')", 1.5),
    ],
)
def test_types_of_the_engine(con, expression, expected):
    (found,) = con.sql(f"select {expression} as v").fetchone()
    assert found == expected


def test_a_month_has_no_length(con):
    (text,) = con.sql("select interval '2 months'").fetchone()
    assert isinstance(text, str) and "2 mon" in text


def test_moments_have_their_zone(con):
    moment = con.sql("select timestamptz '2024-07-01 12:00:00+00' at time zone 'UTC'").fetchone()[0]
    assert moment.hour == 12
    zoned = con.sql("select arrow_cast('2024-07-01T12:00:00', 'Timestamp(Microsecond, Some(\"Europe/Berlin\"))')")
    (value,) = zoned.fetchone()
    assert value.utcoffset() == dt.timedelta(hours=2) and value.hour == 12


def test_years_beyond_python_are_texts(con):
    values = con.sql("select arrow_cast(4000000, 'Date32'), arrow_cast(900000000000000000, 'Timestamp(Microsecond, None)')")
    assert all(isinstance(value, str) for value in values.fetchone())


def test_columns_may_have_one_name(con):
    relation = con.sql("select 1 as a, 2 as a")
    assert (relation.columns, relation.fetchone()) == (["a", "a"], (1, 2))


def test_an_answer_without_rows_has_columns(con):
    relation = con.sql("select 1 as a where false")
    assert (relation.columns, relation.fetchall()) == (["a"], [])
