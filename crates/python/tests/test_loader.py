"""Batches for learners."""

import sys

import numpy as np
import pyarrow as pa
import pytest

import headrace

ROWS = 10_007
ITEMS = 6


@pytest.fixture(scope="module")
def table():
    ids = np.arange(ROWS, dtype=np.int64)
    floats = (np.arange(ROWS * ITEMS, dtype=np.float32) / 7).reshape(ROWS, ITEMS)
    bits = (np.arange(ROWS * 5, dtype=np.uint32) * 37 % 251).astype(np.uint8)
    return pa.table(
        {
            "id": ids,
            "label": (ids % 3).astype(np.int8),
            "v": pa.FixedSizeListArray.from_arrays(pa.array(floats.ravel()), ITEMS),
            "fp": pa.Array.from_buffers(pa.binary(5), ROWS, [None, pa.py_buffer(bits.tobytes())]),
            "note": [str(n) for n in ids],
        }
    )


@pytest.fixture(scope="module")
def path(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("loader") / "t.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=1_500)
    return path


def together(batches):
    batches = list(batches)
    return {name: np.concatenate([np.asarray(batch[name]) for batch in batches]) for name in batches[0]}


def matches(found, table):
    """Whether each row is one of the table's, whole."""
    order = found["id"]
    vectors = np.asarray(table["v"].combine_chunks().flatten()).reshape(ROWS, ITEMS)
    bits = np.frombuffer(table["fp"].combine_chunks().buffers()[1], np.uint8).reshape(ROWS, 5)
    assert (found["v"] == vectors[order]).all()
    assert (found["fp"] == bits[order]).all()
    assert (found["label"] == order % 3).all()
    return order


def test_rows_come_in_their_order(table, path):
    loader = headrace.loader(path, 256)
    batches = list(loader)
    assert len(batches) == len(loader) == -(-ROWS // 256)
    assert [len(batch["id"]) for batch in batches[:-1]] == [256] * (len(batches) - 1)
    # Texts have no fixed width.
    assert {name: (values.dtype, values.shape[1:]) for name, values in batches[0].items()} == {
        "id": (np.int64, ()),
        "label": (np.int8, ()),
        "v": (np.float32, (ITEMS,)),
        "fp": (np.uint8, (5,)),
    }
    assert (matches(together(batches), table) == np.arange(ROWS)).all()
    report = loader.report()
    assert report["bytes"] == ROWS * (8 + 1 + 4 * ITEMS + 5) and report["batches"] == len(batches)


@pytest.mark.parametrize("window_rows, block_rows", [(1_000, 64), (700, 5_000), (20_000, 1), (1, 300)])
def test_each_row_comes_once_however_it_is_shuffled(table, path, window_rows, block_rows):
    loader = headrace.loader(path, 100, shuffle=3, window_rows=window_rows, block_rows=block_rows)
    first, second = (matches(together(loader), table) for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert (first != second).any() and (first != np.arange(ROWS)).any()


def test_the_order_follows_from_seed_and_epoch_alone(table, path):
    def epoch(number, seed=5, threads=None):
        loader = headrace.loader(path, 64, shuffle=seed, window_rows=640, block_rows=50, threads=threads, columns=["id"])
        loader.set_epoch(number)
        return together(loader)["id"].tolist()

    assert epoch(7) == epoch(7, threads=1)
    assert epoch(7) != epoch(8)
    assert epoch(7) != epoch(7, seed=6)


def test_neighbours_are_torn_apart(path):
    order = together(headrace.loader(path, 100, shuffle=1, window_rows=2_000, block_rows=25, columns=["id"]))["id"]
    assert (np.abs(np.diff(order)) == 1).mean() < 0.02
    # Rows of the last quarter are spread over the epoch.
    assert np.histogram(np.flatnonzero(order > ROWS * 3 // 4), 10, (0, ROWS))[0].min() > ROWS / 100


@pytest.mark.parametrize("stop", [1, 5, 17, 38])
def test_a_loader_goes_on_where_another_was(path, stop):
    def make():
        return headrace.loader(path, 100, shuffle=9, window_rows=700, block_rows=40, columns=["id"])

    whole = [batch["id"].tolist() for batch in make()]
    one = make()
    seen = [batch["id"].tolist() for batch, _ in zip(one, range(stop), strict=False)]
    state = one.state_dict()
    assert state == {"epoch": 0, "batch": stop + 1} or state == {"epoch": 0, "batch": stop}
    other = make()
    other.load_state_dict({"epoch": 0, "batch": len(seen)})
    rest = [batch["id"].tolist() for batch in other]
    assert seen + rest == whole
    assert other.state_dict() == {"epoch": 1, "batch": 0}


@pytest.mark.parametrize("world", [2, 3, 7])
def test_ranks_share_the_rows(table, path, world):
    shares = []
    for rank in range(world):
        loader = headrace.loader(path, 32, shuffle=2, window_rows=500, block_rows=30, rank=rank, world=world)
        shares.append(matches(together(loader), table))
        assert len(loader) == -(-len(shares[-1]) // 32)
    assert sorted(np.concatenate(shares)) == list(range(ROWS))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_the_last_batch_may_be_left_out(path):
    loader = headrace.loader(path, 1_000, drop_last=True, columns=["id"])
    assert [len(batch["id"]) for batch in loader] == [1_000] * 10
    assert len(loader) == 10


def test_batches_without_an_order_are_not_copied(path):
    first, second = list(headrace.loader(path, 100, columns=["v"]))[:2]
    assert first["v"].base is not None and first["v"].base is second["v"].base


@pytest.mark.parametrize("shuffle", [None, 4])
def test_rows_of_a_query(table, path, shuffle):
    with headrace.connect(path.parent) as con:
        sql = "select id, label, v, fp from t where id % 2 = 0 order by id"
        loader = headrace.loader(sql, 300, shuffle=shuffle, window_rows=900, connection=con)
        found = matches(together(loader), table)
        assert sorted(found) == list(range(0, ROWS, 2))
        assert (found == np.arange(0, ROWS, 2)).all() == (shuffle is None)
        again = matches(together(headrace.loader(con.sql(sql), 300, shuffle=shuffle, window_rows=900)), table)
        assert (again == found).all()
        ranks = [headrace.loader(con.sql(sql), 300, window_rows=300, rank=rank, world=2) for rank in range(2)]
        assert sorted(np.concatenate([together(rank)["id"] for rank in ranks])) == list(range(0, ROWS, 2))
        other = headrace.loader(con.sql(sql), 300, shuffle=shuffle, window_rows=900)
        other.load_state_dict({"epoch": 1, "batch": 4})
        assert (together(other)["id"] == together(loader)["id"][4 * 300 :]).all()
        with pytest.raises(TypeError):
            len(other)


def test_tensors_of_torch(table, path):
    torch = pytest.importorskip("torch")
    batches = list(headrace.loader(path, 500, device="cpu", shuffle=1))
    assert all(isinstance(values, torch.Tensor) for values in batches[0].values())
    assert sorted(matches(together(batches), table)) == list(range(ROWS))


def test_mistakes_are_told(path, tmp_path):
    with pytest.raises(headrace.ProgrammingError, match="no column nothing"):
        headrace.loader(path, 10, columns=["nothing"])
    with pytest.raises(headrace.NotSupportedError, match="note"):
        headrace.loader(path, 10, columns=["note"])
    with pytest.raises(headrace.Error, match="missing"):
        headrace.loader(tmp_path / "missing.arrow", 10)
    with pytest.raises(headrace.InterfaceError):
        headrace.loader(path, 0)
    with pytest.raises(headrace.InterfaceError):
        headrace.loader(path, 1, rank=2, world=2)
    with pytest.raises(headrace.NotSupportedError, match="NULL"):
        list(headrace.loader("select case when value > 1 then value end as x from range(0, 4)", 2))
    if "torch" not in sys.modules:
        with pytest.raises(headrace.InterfaceError, match="torch"):
            headrace.loader(path, 10, device="cuda")
    nulls = tmp_path / "nulls.arrow"
    with pa.OSFile(str(nulls), "wb") as file:
        table = pa.table({"x": [1, None, 3]})
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    with pytest.raises(headrace.NotSupportedError, match="NULLs in record batch 0"):
        headrace.loader(nulls, 10, columns=["x"])


def test_a_file_that_changes_is_told(table, tmp_path):
    path = tmp_path / "t.arrow"

    def write(rows):
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table.slice(0, rows))

    write(5_000)
    loader = headrace.loader(path, 100, columns=["id"])
    write(4_000)
    with pytest.raises(headrace.Error):
        list(loader)


def test_a_loader_that_is_left_stops(path):
    import threading

    before = threading.active_count()
    for _ in range(20):
        loader = headrace.loader(path, 10, shuffle=1, window_rows=100, ahead=1)
        next(iter(loader))
        del loader
    assert threading.active_count() <= before + 2
