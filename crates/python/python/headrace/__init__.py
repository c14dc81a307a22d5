"""SQL over tables that do not fit in memory, streamed into a GPU or the CPU.

>>> import headrace
>>> headrace.sql("select 6 * 7 as answer").fetchall()
[(42,)]

A folder of Parquet, Arrow, CSV or JSON files is a database:

>>> con = headrace.connect(folder)
>>> con.sql("select count(*) from trips").fetchone()
(3,)

A relation is lazy: it is SQL until somebody asks for its rows, as tuples, as a dataframe of pandas or polars, or as Arrow.

>>> long = con.table("trips").filter("km > 2").select("id", "km")
>>> long.order("km desc").fetchall()
[(3, 11.5), (1, 3.2)]

Dataframes and Arrow tables in variables are tables, too.
"""

from headrace import _headrace
from headrace._connection import (
    Connection,
    connect,
    cuda_function,
    default_connection,
    execute,
    from_arrow,
    read_arrow,
    read_csv,
    read_json,
    read_parquet,
    register,
    sql,
    table,
    udf,
    unregister,
)
from headrace._errors import (
    CatalogError,
    CorruptFileError,
    DatabaseError,
    DataError,
    DeviceError,
    Error,
    FallbackError,
    FileError,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    OutOfMemoryError,
    ParserError,
    ProgrammingError,
    SettingError,
    TimeoutError,
    Warning,
)
from headrace._kept import KeptColumn, KeptTable, open
from headrace._loader import Loader, loader
from headrace._relation import Relation

__version__: str = _headrace.__version__

__all__ = [
    "CatalogError",
    "Connection",
    "CorruptFileError",
    "DataError",
    "DatabaseError",
    "DeviceError",
    "Error",
    "FallbackError",
    "FileError",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "KeptColumn",
    "KeptTable",
    "Loader",
    "NotSupportedError",
    "OperationalError",
    "OutOfMemoryError",
    "ParserError",
    "ProgrammingError",
    "Relation",
    "SettingError",
    "TimeoutError",
    "Warning",
    "connect",
    "cuda_function",
    "default_connection",
    "execute",
    "from_arrow",
    "loader",
    "read_arrow",
    "read_csv",
    "read_json",
    "read_parquet",
    "register",
    "sql",
    "table",
    "udf",
    "unregister",
]


def load_ipython_extension(shell: object) -> None:
    """``%load_ext headrace``: the magics ``%headrace`` and ``%%headrace``."""
    from headrace import _jupyter

    _jupyter.load(shell)
