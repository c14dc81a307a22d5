"""Tables of other libraries in, rows out: pandas, polars, pyarrow, NumPy, torch, each if it is there."""

import datetime as dt

import pytest

import headrace

pa = pytest.importorskip("pyarrow")


def addresses(table):
    """Where the values of a table's columns are."""
    chunks = [chunk for column in table.columns for chunk in column.chunks]
    return [buffer.address for chunk in chunks for buffer in chunk.buffers() if buffer is not None and buffer.size]


def test_arrow_tables_are_read_where_they_are(con):
    table = pa.table({"a": [1, 2, 3], "b": [0.5, None, 2.5]})
    con.register("t", table)
    back = con.sql("select * from t").arrow()
    assert back.equals(table)
    assert set(addresses(back)) & set(addresses(table)), "values were copied"


def test_rows_are_handed_out_without_copies(con):
    rows = con.sql("select value as a from range(10000)").execute()
    first, second = rows.arrow(), pa.table(rows)
    assert addresses(first) == addresses(second)
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(rows)
    assert frame["a"].sum() == 49995000


@pytest.mark.parametrize("kind", ["table", "batch", "reader", "dataset", "dict", "numpy", "numpy2", "struct", "pandas", "polars", "lazy"])
def test_kinds_of_tables(con, kind):
    table = pa.table({"a": [1, 2, 3]})
    if kind in ("numpy", "numpy2", "struct"):
        np = pytest.importorskip("numpy")
        t = {
            "numpy": np.array([1, 2, 3]),
            "numpy2": np.array([[1], [2], [3]]),
            "struct": np.array([(1,), (2,), (3,)], dtype=[("column0", "i8")]),
        }[kind]
        assert con.sql("select sum(column0) from t").fetchone() == (6,)
        return
    if kind == "pandas":
        t = pytest.importorskip("pandas").DataFrame({"a": [1, 2, 3]}, index=[7, 8, 9])
    elif kind in ("polars", "lazy"):
        pl = pytest.importorskip("polars")
        t = pl.DataFrame({"a": [1, 2, 3]}) if kind == "polars" else pl.LazyFrame({"a": [1, 2, 3]})
    elif kind == "dataset":
        t = pytest.importorskip("pyarrow.dataset").dataset(table)
    else:
        t = {"table": table, "batch": table.to_batches()[0], "reader": table.to_reader(), "dict": {"a": [1, 2, 3]}}[kind]
    assert con.sql("select * from t").columns == ["a"] or kind == "reader"
    if kind == "reader":
        t = table.to_reader()
    assert con.sql("select sum(a) from t").fetchone() == (6,)


def test_a_reader_is_read_once(con):
    con.register("r", pa.table({"a": [1, 2]}).to_reader())
    assert con.sql("select sum(a) from r").fetchone() == (3,)
    with pytest.raises(headrace.Error, match="read once"):
        con.sql("select sum(a) from r").fetchone()
    q = pa.table({"a": [1, 2]}).to_reader()
    relation = con.sql("select sum(a) from q")
    assert "read once" in repr(relation) and relation._repr_html_() is None
    assert relation.fetchall() == [(3,)]
    with pytest.raises(headrace.Error, match="read once"):
        relation.fetchall()


def test_a_dataset_is_scanned_anew(con):
    dataset = pytest.importorskip("pyarrow.dataset").dataset(pa.table({"a": [1, 2]}))
    relation = con.from_arrow(dataset)
    assert relation.fetchall() == relation.fetchall() == [(1,), (2,)]


@pytest.mark.parametrize("rows", [3, 9000, 500_000])
def test_rows_of_tables_keep_their_order(con, rows):
    numbers = pa.table({"a": range(rows)})
    relation = con.from_arrow(numbers)
    expected = list(range(rows))
    assert relation.arrow()["a"].to_pylist() == expected
    assert relation.filter("a >= 0").select("a + 1").arrow()[0].to_pylist() == list(range(1, rows + 1))
    kept = con.sql("select a from numbers order by a desc").execute()
    assert [a for a, in kept] == kept.arrow()["a"].to_pylist() == expected[::-1]
    assert kept.fetchmany(2) == [(rows - 1,), (rows - 2,)]


def test_values_that_are_no_tables_are_left_alone(con):
    settings = {"a": 1}
    series = pa.array([1, 2])
    for name in ("settings", "series"):
        with pytest.raises(headrace.CatalogError, match=f"no table {name}"):
            con.sql(f"select * from {name}").fetchall()
    assert settings and len(series) == 2


def test_spelling_chooses_a_variable(con):
    df, DF = {"a": [1]}, {"a": [2]}
    assert con.sql("select * from DF").fetchall() == [(2,)]
    assert con.sql("select * from df").fetchall() == [(1,)]
    assert df and DF
    with pytest.raises(headrace.InterfaceError, match="could be DF or df"):
        con.sql("select * from Df").fetchall()


def test_a_categorical_of_nothing(con):
    pd = pytest.importorskip("pandas")
    assert con.from_arrow(pd.DataFrame({"a": pd.Categorical([None, None])})).fetchall() == [(None,), (None,)]


def test_types_that_dataframes_lack_are_texts(con):
    pl = pytest.importorskip("polars")
    frame = con.sql("select interval '1 month' as i, 1 as n").pl()
    assert frame.schema["i"] == pl.String


def test_a_reader_is_not_read_ahead(con):
    seen = []

    def batches():
        for n in range(1000):
            seen.append(n)
            yield pa.record_batch({"a": [n] * 1000})

    reader = pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64()}), batches())
    rows = con.sql("select a from reader")
    assert rows.fetchone() == (0,)
    assert len(seen) < 500
    assert len(rows.fetchall()) == 999_999


def test_an_error_of_a_reader_is_told(con):
    def batches():
        yield pa.record_batch({"a": [1]})
        raise ValueError("the source is dry")

    reader = pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64()}), batches())
    with pytest.raises(headrace.Error, match="the source is dry"):
        con.sql("select sum(a) from reader").fetchall()


def test_names_in_another_case(con):
    Trips = pa.table({"Km": [1.5]})
    assert con.sql("select Km from Trips").fetchone() == (1.5,)


def test_variables_of_functions_and_modules(con):
    local = pa.table({"a": [1]})

    def inner():
        return con.sql("select a from local").fetchone(), local

    assert inner()[0] == (1,)
    assert con.sql("select count(*) from GLOBAL_TABLE").fetchone() == (2,)
    with pytest.raises(headrace.CatalogError, match="no table nothing"):
        con.sql("select * from nothing").fetchall()


GLOBAL_TABLE = {"a": [1, 2]}


def test_each_relation_has_its_own_variables(con):
    def made(values):
        t = pa.table({"a": values})
        return con.sql("select * from t"), t

    (one, _), (two, _) = made([1]), made([2])
    assert sorted(one.union(two)) == [(1,), (2,)]
    df = {"a": [1]}
    z = con.sql("select * from df")
    df = con.sql("select 2 as a")
    assert con.sql("select df.a, z.a from df, z").fetchall() == [(2, 1)]
    assert df.fetchone() == (2,)


def test_types_survive_a_round_trip(con):
    table = pa.table(
        {
            "i8": pa.array([1, None], pa.int8()),
            "u64": pa.array([2**64 - 1, 0], pa.uint64()),
            "f32": pa.array([0.5, None], pa.float32()),
            "s": pa.array(["x", None], pa.string()),
            "ls": pa.array(["x", None], pa.large_string()),
            "sv": pa.array(["x", "longer than twelve bytes"], pa.string_view()),
            "b": pa.array([b"x", None], pa.binary()),
            "d": pa.array([dt.date(2024, 1, 1), None], pa.date32()),
            "ts": pa.array([dt.datetime(2024, 1, 1), None], pa.timestamp("us")),
            "tz": pa.array([dt.datetime(2024, 1, 1), None], pa.timestamp("us", "UTC")),
            "dec": pa.array([1, None], pa.decimal128(9, 2)),
            "l": pa.array([[1, 2], None], pa.list_(pa.int64())),
            "st": pa.array([{"a": 1}, None], pa.struct({"a": pa.int64()})),
            "dict": pa.array(["x", None]).dictionary_encode(),
            "bool": pa.array([True, None]),
        }
    )
    back = con.from_arrow(table).arrow()
    assert back.schema.names == table.schema.names
    for name in table.schema.names:
        assert back[name].to_pylist() == table[name].to_pylist(), name
    assert con.from_arrow(table).fetchall() == [tuple(row.values()) for row in table.to_pylist()]


def test_pandas(con):
    pd = pytest.importorskip("pandas")

    frame = con.sql("select value as a, 'x' || value as b, value / 2.0 as c from range(3)").df()
    assert list(frame.columns) == ["a", "b", "c"]
    assert frame["b"].tolist() == ["x0", "x1", "x2"]
    kinds = pd.DataFrame(
        {
            "s": ["x", None, "y"],
            "cat": pd.Categorical(["u", "v", "u"]),
            "when": pd.to_datetime(["2024-01-01", None, "2024-01-03"]),
            "i": pd.array([1, None, 3], dtype="Int64"),
            1: [1.5, 2.5, None],
        }
    )
    rows = con.sql('select count(s), max("cat"), min("when"), sum(i), sum("1") from kinds').fetchone()
    assert rows == (2, "v", dt.datetime(2024, 1, 1), 4, 4.0)


def test_dictionaries_are_plain_text_in_dataframes(con, tmp_path):
    pd = pytest.importorskip("pandas")
    table = pa.table({"s": pa.array(["x", "y", "x"]).dictionary_encode()})
    with pa.OSFile(str(tmp_path / "t.arrow"), "w") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    con.add(tmp_path / "t.arrow")
    frame = con.table("t").df()
    assert not isinstance(frame["s"].dtype, pd.CategoricalDtype)
    assert frame["s"].tolist() == ["x", "y", "x"]


def test_polars(con):
    pl = pytest.importorskip("polars")
    frame = con.sql("select value as a, 'x' as b from range(3)").pl()
    assert frame.schema == {"a": pl.Int64, "b": pl.String}


def test_numpy_and_torch(con):
    np = pytest.importorskip("numpy")
    arrays = con.sql("select value as a, nullif(value, 1) as b, 'x' as c from range(3)").numpy()
    assert arrays["a"].tolist() == [0, 1, 2]
    assert np.ma.is_masked(arrays["b"]) and arrays["b"].sum() == 2
    torch = pytest.importorskip("torch")
    tensors = con.sql("select value as a, value * 0.5 as b from range(3)").torch()
    assert tensors["b"].dtype == torch.float64 and tensors["a"].tolist() == [0, 1, 2]
    with pytest.raises(headrace.InterfaceError, match="NULLs"):
        con.sql("select nullif(value, 1) as b from range(3)").torch()


def test_streams_come_in_pieces(con):
    relation = con.sql("select value as a from range(1000000)")
    reader = relation.to_arrow_reader(rows=10_000)
    sizes = [batch.num_rows for batch in reader]
    assert sum(sizes) == 1_000_000 and max(sizes) <= 10_000
    assert sum(len(chunk) for chunk in relation.df_chunks(100_000)) == 1_000_000
    assert pa.RecordBatchReader.from_stream(relation).read_all().num_rows == 1_000_000


def test_an_error_in_a_stream_is_raised(con):
    bad = con.sql("select 1 / (value - 900000) as x from range(1000000)")
    with pytest.raises(headrace.DataError) as raised:
        for _ in bad.to_arrow_reader():
            pass
    assert raised.value.kind == "division_by_zero"
    with pytest.raises(Exception, match="[Dd]ivi"):
        pa.RecordBatchReader.from_stream(bad).read_all()


def test_empty_answers(con):
    empty = con.sql("select 1 as a, 'x' as b where false")
    assert empty.arrow().num_rows == 0
    assert list(empty.df().columns) == ["a", "b"]
    assert empty.fetchall() == []
    con.register("e", empty.arrow())
    assert con.sql("select count(*) from e").fetchone() == (0,)


def test_a_table_without_columns_of_values(con):
    con.register("t", pa.table({"a": pa.nulls(3)}))
    assert con.sql("select count(*), count(a) from t").fetchone() == (3, 0)


def test_what_is_no_table_is_refused(con):
    with pytest.raises(headrace.InterfaceError, match="no table"):
        con.register("t", 5)
    with pytest.raises(headrace.InterfaceError, match="no table"):
        con.from_arrow("text")
    con.register("t", {"a": [1]})
    con.unregister("t")
    with pytest.raises(headrace.ProgrammingError, match="no table t"):
        con.unregister("t")


def test_registered_tables_join_files(con, folder):
    con.add(folder)
    con.register("cities", {"city": ["Rome", "Oslo"], "land": ["I", "N"]})
    rows = con.sql("select land, sum(km) from trips join cities using (city) group by land order by land").fetchall()
    assert rows == [("I", 14.7), ("N", 0.5)]
    con.register("cities", {"city": ["Rome"], "land": ["X"]})
    assert con.sql("select land from trips join cities using (city)").fetchall() == [("X",), ("X",)]
