"""Feeding learners: batches of tensors, straight from Arrow files, or of the rows of a query.

What happens to a window of rows::

    files ──pread, on threads──► memory ──────────────────────────────────────► arrays, tensors ──► shuffled batches
      │                     └──► a few pinned slots ──copies by the GPU──► tensors there ──► shuffled batches
      └──once read again: their own pages, registered ──copies by the GPU──► tensors there ──► shuffled batches

Rows of files are read in blocks. The blocks of an epoch come in an order that follows from the seed; a window is as many of
them as it has rows for, and the batches of a window take its rows in another such order. So a row may come anywhere in the
epoch, and its neighbours in the file come at other times, yet all reads are of whole blocks.
"""

from __future__ import annotations

import importlib
import os
import queue
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from headrace import _headrace
from headrace._errors import InterfaceError, NotSupportedError

if TYPE_CHECKING:
    from headrace._connection import Connection
    from headrace._relation import Relation

WINDOW_BYTES = 256 << 20
"""Bytes of a window, unless its rows are given."""

BLOCK_BYTES = 1 << 20
"""Bytes of a block's widest column, likewise."""

_END = object()


def loader(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Relation,
    batch_size: int,
    *,
    columns: Sequence[str] | None = None,
    device: Any = None,
    shuffle: int | None = None,
    window_rows: int | None = None,
    block_rows: int | None = None,
    rank: int = 0,
    world: int = 1,
    drop_last: bool = False,
    threads: int | None = None,
    ahead: int = 2,
    registered_bytes: int | None = None,
    connection: Connection | None = None,
) -> Loader:
    """Batches of the rows of Arrow files, or of a query, as tensors by column.

    ``source`` is an Arrow file, a folder of them, several of both, a relation, or a query of SQL. ``device`` says what the
    batches are: NumPy's arrays (``None``), or tensors of torch (``"cpu"``, ``"cuda"``, ``"cuda:1"``). ``shuffle`` is a seed; without
    one rows come in their order. (A query has one if it says ORDER BY; else its rows come as they are found, and no seed brings them
    back.) Of ``world`` ranks, ``rank`` gets its share of the rows. Columns that are lists of so many floats, or bytes of one
    length, are tensors of two dimensions.

    From its second epoch on, the pages of files are registered with the GPU, which then copies from them without the cores:
    ``registered_bytes`` of them in the process (half of the memory that is available, as the first loader found it; 0: none).

    A loader is iterated once for each epoch; left before its end, it goes on there. :meth:`Loader.state_dict` says where it is, :meth:`Loader.load_state_dict` goes
    there, in another process, too.

    >>> import headrace
    >>> batches = headrace.loader("select value as x from range(0, 10)", 4)
    >>> [batch["x"].tolist() for batch in batches]
    [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    """
    if batch_size < 1 or ahead < 1 or not 0 <= rank < world:
        raise InterfaceError(f"batch_size {batch_size}, ahead {ahead}, rank {rank} of {world}: what is counted is 1 at least")
    rows: _Files | _Query
    if _is_query(source):
        rows = _Query(source, columns, connection)
    else:
        given: Any = source
        paths = [given] if isinstance(given, (str, os.PathLike)) else list(given)
        rows = _Files([os.fspath(path) for path in paths], columns, block_rows)
    width = max(rows.row_bytes, 1)
    wanted = window_rows or WINDOW_BYTES // width
    window = max(wanted // batch_size, 1) * batch_size
    reads = threads or min(32, (os.cpu_count() or 1) + 1)
    shared = (batch_size, window, shuffle, rank, world, drop_last, reads, ahead)
    return Loader(rows, _target(device, registered_bytes), *shared)


def _is_query(source: Any) -> bool:
    if not isinstance(source, str):
        return hasattr(source, "to_arrow_reader")
    return " " in source.strip() and not os.path.exists(source)


class Loader:
    """What :func:`headrace.loader` makes."""

    def __init__(
        self,
        rows: _Files | _Query,
        target: _Target,
        batch_size: int,
        window_rows: int,
        seed: int | None,
        rank: int,
        world: int,
        drop_last: bool,
        threads: int,
        ahead: int,
    ) -> None:
        self._rows = rows
        self._target = target
        self._batch_size = batch_size
        self._window_rows = window_rows
        self._seed = seed
        self._rank, self._world = rank, world
        self._drop_last = drop_last
        self._threads, self._ahead = threads, ahead
        self._epoch, self._batch = 0, 0
        self._begun = 0
        self._spent = {"bytes": 0, "seconds": 0.0, "waited_s": 0.0, "batches": 0}

    def __len__(self) -> int:
        """Batches of an epoch."""
        rows = self._rows.count(self._rank, self._world)
        if rows is None:
            raise TypeError("the rows of a query are not known beforehand")
        return rows // self._batch_size if self._drop_last else -(-rows // self._batch_size)

    def state_dict(self) -> dict[str, int]:
        """Where it is: the epoch, and the batches of it that were handed out."""
        return {"epoch": self._epoch, "batch": self._batch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Goes on there, at the next iteration."""
        self._epoch, self._batch = int(state["epoch"]), int(state["batch"])

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, whose order follows from its number and the seed."""
        self._epoch, self._batch = epoch, 0

    def report(self) -> dict[str, Any]:
        """What was delivered so far: bytes, seconds, GB/s (of 10^9 bytes), how long whoever took the batches waited; and the way: on
        a GPU, bytes from registered pages and through slots, and why pages were not registered."""
        seconds = self._spent["seconds"]
        gb_per_s = self._spent["bytes"] / seconds / 1e9 if seconds else 0.0
        ways = {"way": f"{self._rows.way}, {self._target.way}", **self._target.ways()}
        return {**self._spent, "gb_per_s": gb_per_s, **ways}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        started = time.perf_counter()
        epoch, begun = self._epoch, self._batch
        again = self._begun > 0
        self._begun += 1
        first_window = begun * self._batch_size // self._window_rows
        skipped = begun - first_window * (self._window_rows // self._batch_size)
        windows: queue.Queue[Any] = queue.Queue(self._ahead)
        stop = threading.Event()
        reading = threading.Thread(target=self._read, args=(epoch, first_window, again, windows, stop), daemon=True)
        reading.start()
        try:
            while True:
                waiting = time.perf_counter()
                window = windows.get()
                self._spent["waited_s"] += time.perf_counter() - waiting
                if window is _END:
                    break
                if isinstance(window, BaseException):
                    raise window
                for batch in self._target.batches(window, self._batch_size, skipped, self._drop_last):
                    self._batch += 1
                    self._spent["batches"] += 1
                    now = time.perf_counter()
                    self._spent["seconds"] += now - started
                    self._spent["bytes"] += sum(_nbytes(values) for values in batch.values())
                    yield batch
                    started = time.perf_counter()
                skipped = 0
            self._rows.check_unchanged()
            self._epoch, self._batch = epoch + 1, 0
        finally:
            stop.set()
            while reading.is_alive():
                # It may wait for room.
                try:
                    windows.get(timeout=0.01)
                except queue.Empty:
                    continue

    def _read(self, epoch: int, first: int, again: bool, windows: queue.Queue[Any], stop: threading.Event) -> None:
        """Reads windows ahead, as long as somebody wants them."""
        try:
            share = (self._rank, self._world)
            found = self._rows.windows(epoch, first, self._window_rows, share, self._seed)
            with ThreadPoolExecutor(self._rows.orders) as beside:
                for (number, rows, fill), order in self._ordered(epoch, found, beside):
                    if stop.is_set():
                        return
                    memory = self._target.memory(self._rows.columns, rows, again)
                    fill(memory, self._threads)
                    windows.put(self._target.window(memory, None if order is None else order.result()))
            windows.put(_END)
        except BaseException as error:  # it belongs to whoever iterates
            windows.put(error)

    def _ordered(self, epoch: int, found: Iterator[Any], beside: ThreadPoolExecutor) -> Iterator[tuple[Any, Any]]:
        """Windows with the orders of their rows, which are made beside, some windows ahead: an order takes as long as a window."""
        if self._seed is None:
            yield from ((window, None) for window in found)
            return
        pending: deque[tuple[Any, Any]] = deque()
        for window in found:
            number, rows, _ = window
            order = self._target.order_of(rows)
            words = (self._seed, epoch, 1 + self._rank, number)
            pending.append((window, beside.submit(_shuffled, order, *words)))
            if len(pending) > self._rows.orders:
                yield pending.popleft()
        yield from pending


def _nbytes(values: Any) -> int:
    return int(values.nbytes)


def _order(rows: int, *words: int) -> Any:
    """The numbers below some, in an order that follows from the words."""
    return _shuffled(importlib.import_module("numpy").empty(rows, "int64"), *words)


def _shuffled(order: Any, *words: int) -> Any:
    """Memory of 64-bit numbers, filled with those below its length, likewise."""
    _headrace.shuffle([word & (2**64 - 1) for word in words], order.numpy() if hasattr(order, "numpy") else order)
    return order


class _Files:
    """Rows of Arrow files, in blocks."""

    way = "read by threads as they lie"
    orders = 4
    """Windows whose orders are made at once."""

    def __init__(self, paths: list[str], columns: Sequence[str] | None, block_rows: int | None) -> None:
        self._chunks = _headrace.Chunks(paths, list(columns) if columns is not None else None)
        self.columns = [(name, dtype, items) for name, dtype, items in self._chunks.columns]
        self._widths = [_itemsize(dtype) * (1 if items is None else items) for _, dtype, items in self.columns]
        self.row_bytes = sum(self._widths)
        block = block_rows or max(BLOCK_BYTES // max([*self._widths, 1]), 1)
        self._blocks = [
            (chunk, first, min(block, rows - first))
            for chunk, rows in enumerate(self._chunks.rows)
            for first in range(0, rows, block)
        ]
        self._total = sum(rows for _, _, rows in self._blocks)

    def check_unchanged(self) -> None:
        self._chunks.check_unchanged()

    def count(self, rank: int, world: int) -> int | None:
        first, last = self._share(rank, world)
        return last - first

    def _share(self, rank: int, world: int) -> tuple[int, int]:
        return self._total * rank // world, self._total * (rank + 1) // world

    def windows(
        self, epoch: int, first: int, window_rows: int, share: tuple[int, int], seed: int | None
    ) -> Iterator[tuple[int, int, Any]]:
        """Number, rows, and what fills its memory, of each window from the first one on."""
        blocks = self._blocks
        if seed is not None:
            blocks = [blocks[at] for at in _order(len(blocks), seed, epoch, 0)]
        ends = []
        end = 0
        for _, _, rows in blocks:
            end += rows
            ends.append(end)
        begin, last = self._share(*share)
        number = first
        at = begin + first * window_rows
        while at < last:
            rows = min(window_rows, last - at)
            pieces = self._pieces(blocks, ends, at, at + rows)
            yield number, rows, lambda memory, threads, pieces=pieces: memory.read(self._chunks, pieces, threads)
            at += rows
            number += 1

    @staticmethod
    def _pieces(
        blocks: list[tuple[int, int, int]], ends: list[int], begin: int, end: int
    ) -> list[tuple[int, int, int, int]]:
        """Chunk, first row, rows and place in the window of what lies between two rows of the epoch."""
        pieces = []
        nth = bisect_right(ends, begin)
        at = begin
        while at < end:
            chunk, first, rows = blocks[nth]
            skip = at - (ends[nth] - rows)
            take = min(rows - skip, end - at)
            pieces.append((chunk, first + skip, take, at - begin))
            at += take
            nth += 1
        return pieces


class _Query:
    """Rows of a query, in the order in which they come."""

    way = "rows of a query, copied once"
    orders = 1
    """A window ahead holds its rows."""

    def __init__(self, source: Any, columns: Sequence[str] | None, connection: Connection | None) -> None:
        if isinstance(source, str):
            from headrace import _connection

            relation: Any = (connection or _connection.default_connection()).sql(source)
        else:
            relation = source
        self._relation: Any = relation.select(*columns) if columns is not None else relation
        reader = self._relation.limit(0).to_arrow_reader()
        self.columns = [_of_arrow(field) for field in reader.schema]
        self.row_bytes = sum(_itemsize(dtype) * (items or 1) for _, dtype, items in self.columns)

    def check_unchanged(self) -> None:
        """The engine has looked."""

    def count(self, rank: int, world: int) -> int | None:
        return None

    def windows(
        self, epoch: int, first: int, window_rows: int, share: tuple[int, int], seed: int | None
    ) -> Iterator[tuple[int, int, Any]]:
        """As of files; windows are dealt to the ranks in turn."""
        rank, world = share
        held: list[list[Any]] = []
        rows, number = 0, 0
        for batch in self._relation.to_arrow_reader():
            held.append([_as_numpy(batch.column(at), dtype, items) for at, (_, dtype, items) in enumerate(self.columns)])
            rows += batch.num_rows
            while rows >= window_rows:
                window, held = _cut(held, window_rows)
                rows -= window_rows
                if number % world == rank and number // world >= first:
                    yield number // world, window_rows, _copied(window)
                number += 1
        if rows and number % world == rank and number // world >= first:
            yield number // world, rows, _copied(held)


def _cut(held: list[list[Any]], rows: int) -> tuple[list[list[Any]], list[list[Any]]]:
    """The first rows, and the rest."""
    window, left = [], rows
    for place, part in enumerate(held):
        own = len(part[0])
        if own > left:
            window.append([values[:left] for values in part])
            return window, [[values[left:] for values in part], *held[place + 1 :]]
        window.append(part)
        left -= own
    return window, []


def _copied(window: list[list[Any]]) -> Any:
    def fill(memory: Any, threads: int) -> None:
        for column, values in enumerate(memory.arrays):
            at = 0
            for part in window:
                values[at : at + len(part[column])] = part[column]
                at += len(part[column])

    return fill


def _of_arrow(field: Any) -> tuple[str, str, int | None]:
    types = importlib.import_module("pyarrow").types
    of = field.type
    if types.is_fixed_size_list(of):
        return field.name, _dtype(field.name, of.value_type), of.list_size
    if types.is_fixed_size_binary(of):
        return field.name, "uint8", of.byte_width
    return field.name, _dtype(field.name, of), None


def _dtype(name: str, of: Any) -> str:
    try:
        dtype = str(of.to_pandas_dtype().__name__)
    except (NotImplementedError, AttributeError):
        dtype = ""
    if dtype not in _WIDTHS:
        raise NotSupportedError(f"column {name}: tensors have no type for {of}; cast it, to a double for example")
    return dtype


def _as_numpy(column: Any, dtype: str, items: int | None) -> Any:
    if column.null_count:
        raise NotSupportedError("tensors have no NULLs; coalesce(column, value) gives them one")
    if items is None:
        return column.to_numpy(zero_copy_only=False)
    if dtype == "uint8" and not hasattr(column, "flatten"):
        numpy = importlib.import_module("numpy")
        data = numpy.frombuffer(column.buffers()[1], numpy.uint8)
        return data[column.offset * items : (column.offset + len(column)) * items].reshape(-1, items)
    return column.flatten().to_numpy(zero_copy_only=False).reshape(-1, items)


_WIDTHS = {
    "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "float32": 4, "float64": 8,
}  # fmt: skip


def _itemsize(dtype: str) -> int:
    return _WIDTHS[dtype]


class _Memory:
    """Where the columns of a window are read to."""

    def __init__(self, columns: list[tuple[str, str, int | None]], rows: int, buffers: list[Any]) -> None:
        self.columns, self.rows, self.buffers = columns, rows, buffers

    def read(self, chunks: _headrace.Chunks, pieces: list[tuple[int, int, int, int]], threads: int) -> None:
        """Reads pieces of all columns."""
        chunks.read(range(len(self.columns)), pieces, self.buffers, threads)

    @property
    def arrays(self) -> list[Any]:
        """The buffers as NumPy's arrays of the columns' types."""
        views = []
        for (_, dtype, items), buffer in zip(self.columns, self.buffers, strict=True):
            bytes_ = self.rows * _itemsize(dtype) * (1 if items is None else items)
            values = buffer[:bytes_].view(dtype)
            views.append(values if items is None else values.reshape(self.rows, items))
        return views


class _Target:
    """What batches are: NumPy's arrays. Those of a window without an order are parts of its memory; with one they are
    copies, and the memory is read to again."""

    way = "into NumPy's arrays"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[tuple[int, Any]] = []

    def memory(self, columns: list[tuple[str, str, int | None]], rows: int, again: bool) -> Any:
        """Memory of a window; again: its rows were read before."""
        widths = [_itemsize(dtype) * (1 if items is None else items) for _, dtype, items in columns]
        return _Memory(columns, rows, [self._taken(rows * width) for width in widths])

    def _taken(self, bytes_: int) -> Any:
        """Memory of so many bytes, or more, that nobody reads any more: new memory takes longer than a copy."""
        with self._lock:
            fitting = [at for at, (size, _) in enumerate(self._free) if bytes_ <= size <= 2 * bytes_ + 4096]
            found = self._free.pop(fitting[0]) if fitting else None
        if found is not None:
            return found[1]
        numpy = importlib.import_module("numpy")
        return numpy.empty(bytes_, numpy.uint8)

    def order_of(self, rows: int) -> Any:
        """Memory for the order of so many rows."""
        return importlib.import_module("numpy").empty(rows, "int64")

    def ways(self) -> dict[str, Any]:
        """How the bytes went, where there are several ways."""
        return {}

    def give_back(self, memory: _Memory) -> None:
        with self._lock:
            self._free.extend((len(buffer), buffer) for buffer in memory.buffers)

    def window(self, memory: Any, order: Any) -> Any:
        """A window that has been read."""
        names = [name for name, _, _ in memory.columns]
        return memory, dict(zip(names, memory.arrays, strict=True)), order, None

    def batches(self, window: Any, size: int, skipped: int, drop_last: bool) -> Iterator[dict[str, Any]]:
        memory, columns, order, ready = window
        self.wait(columns, order, ready)
        for first in range(skipped * size, memory.rows, size):
            last = min(first + size, memory.rows)
            if drop_last and last - first < size:
                break
            if order is None:
                yield {name: values[first:last] for name, values in columns.items()}
            else:
                taken = order[first:last]
                yield {name: self.take(values, taken) for name, values in columns.items()}
        self.done(memory, order)

    def wait(self, columns: dict[str, Any], order: Any, ready: Any) -> None:
        """Until the window is there."""

    def take(self, values: Any, order: Any) -> Any:
        return values.take(order, axis=0)

    def done(self, memory: Any, order: Any) -> None:
        """All batches of a window were handed out."""
        if order is not None:
            self.give_back(memory)


class _Torch(_Target):
    """Tensors of torch in host memory."""

    way = "into tensors"

    def __init__(self, torch: Any) -> None:
        super().__init__()
        self.torch = torch

    def window(self, memory: Any, order: Any) -> Any:
        memory, columns, order, ready = super().window(memory, order)
        tensors = {name: self.torch.from_numpy(values) for name, values in columns.items()}
        return memory, tensors, None if order is None else self.torch.from_numpy(order), ready

    def take(self, values: Any, order: Any) -> Any:
        return values.index_select(0, order)


class _Tensors:
    """A window of tensors in a GPU's memory."""

    def __init__(self, cuda: _Cuda, columns: list[tuple[str, str, int | None]], rows: int, again: bool) -> None:
        self.cuda, self.columns, self.rows, self.again = cuda, columns, rows, again
        self.host: list[Any] | None = None
        torch = cuda.torch
        widths = [_itemsize(dtype) * (1 if items is None else items) for _, dtype, items in columns]
        with torch.cuda.stream(cuda.stream):
            self.tensors = [torch.empty(rows * width, dtype=torch.uint8, device=cuda.device) for width in widths]

    def read(self, chunks: _headrace.Chunks, pieces: list[tuple[int, int, int, int]], threads: int) -> None:
        """Reads pieces of all columns, behind what the stream holds."""
        memory = [(tensor.data_ptr(), tensor.numel()) for tensor in self.tensors]
        self.cuda.reads.read(chunks, pieces, memory, threads, self.again)

    @property
    def arrays(self) -> list[Any]:
        """Arrays in host memory for rows that are no file's; :meth:`_Cuda.window` copies them."""
        numpy = importlib.import_module("numpy")
        self.host = [numpy.empty((self.rows, *([] if items is None else [items])), dtype) for _, dtype, items in self.columns]
        return self.host


class _Cuda(_Torch):
    """Tensors in a GPU's memory, which fetches them from the files' own pages or from pinned slots."""

    way = "copied by the GPU"

    def __init__(self, torch: Any, device: Any, registered_bytes: int | None) -> None:
        super().__init__(torch)
        self.device = device
        self.reads = _headrace.DeviceReads(device.index, registered_bytes)
        self.stream = torch.cuda.ExternalStream(self.reads.stream, device)

    def memory(self, columns: list[tuple[str, str, int | None]], rows: int, again: bool) -> Any:
        return _Tensors(self, columns, rows, again)

    def order_of(self, rows: int) -> Any:
        return self.torch.empty(rows, dtype=self.torch.int64, pin_memory=True)

    def ways(self) -> dict[str, Any]:
        registered, slots, refusal = self.reads.ways()
        return {"registered_bytes": registered, "slots_bytes": slots, "not_registered": refusal}

    def window(self, memory: Any, order: Any) -> Any:
        torch = self.torch
        tensors = {}
        with torch.cuda.stream(self.stream):
            for at, (name, dtype, items) in enumerate(memory.columns):
                if memory.host is not None:
                    tensors[name] = torch.from_numpy(memory.host[at]).to(self.device)
                    continue
                values = memory.tensors[at].view(getattr(torch, dtype))
                tensors[name] = values if items is None else values.view(memory.rows, items)
            if order is not None:
                order = order.to(self.device, non_blocking=True)
            ready = torch.cuda.Event()
            ready.record(self.stream)
        return memory, tensors, order, ready

    def wait(self, columns: dict[str, Any], order: Any, ready: Any) -> None:
        current = self.torch.cuda.current_stream(self.device)
        current.wait_event(ready)
        for values in [*columns.values(), *([] if order is None else [order])]:
            # Its memory was taken in the stream of the copies.
            values.record_stream(current)

    def done(self, memory: Any, order: Any) -> None:
        """Whoever holds its tensors holds their memory."""


def _target(device: Any, registered_bytes: int | None) -> _Target:
    if device is None:
        return _Target()
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        raise InterfaceError(f"device {device!r}: tensors need torch\nhint: pip install torch, or device=None for NumPy's arrays") from None
    found = torch.device(device)
    if found.type == "cpu":
        return _Torch(torch)
    if found.type == "cuda":
        if not torch.cuda.is_available():
            raise InterfaceError(f"device {device!r}: torch sees no GPU")
        return _Cuda(torch, torch.device("cuda", found.index or 0), registered_bytes)
    raise NotSupportedError(f"device {device!r}: tensors are made for cpu and cuda")
