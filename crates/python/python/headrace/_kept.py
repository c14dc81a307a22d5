"""Tables that the GPU service keeps, as memory of a GPU in this process."""

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Any

from headrace import _headrace


class KeptColumn(Sequence[Any]):
    """A column: one part for each of its record batches (of two million rows at most), in the order of the rows.

    A part has ``__dlpack__``, ``__cuda_array_interface__`` and ``__arrow_c_device_array__``, so that ``torch.from_dlpack``,
    ``cupy.asarray`` and others take it. They see the service's bytes, without a copy, and must not write to them. As long as
    anything of it lives, the service frees nothing of it.
    """

    def __init__(self, name: str, parts: list[_headrace.Part]) -> None:
        self.name = name
        self._parts = parts

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, index: Any) -> Any:
        return self._parts[index]

    @property
    def rows(self) -> int:
        """Its rows."""
        return sum(len(part) for part in self._parts)

    def __repr__(self) -> str:
        return f"<column {self.name}: {self.rows} rows in {len(self)} parts on a GPU>"


class KeptTable(Mapping[str, KeptColumn]):
    """The columns of a table in the memory of a GPU, by their names."""

    def __init__(self, name: str, columns: list[tuple[str, list[_headrace.Part]]]) -> None:
        self.name = name
        self._columns = {name: KeptColumn(name, parts) for name, parts in columns}

    def __getitem__(self, name: str) -> KeptColumn:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"<table {self.name} on a GPU: {', '.join(self)}>"


def open(
    table: str, columns: Sequence[str] | None = None, *, service: str | PathLike[str] | None = None
) -> KeptTable:
    """Map a table that the GPU service keeps (``ALTER TABLE t SET (residence = 'gpu')``) into this process.

    :param table: its name.
    :param columns: the columns that are wanted; all that are kept if there are none.
    :param service: the folder of the service's socket; the user's own if there is none.
    :raises DeviceError: no service runs, it keeps no such table or column, or its files have changed since.
    """
    folder = None if service is None else fspath(service)
    return KeptTable(table, _headrace.map_kept(table, list(columns or []), folder))
