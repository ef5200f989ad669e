"""Tables made into Parquet files that pandas and DuckDB read.

Does: takes what people have (DataFrames, Arrow tables, dicts of columns, dicts, rows), makes Arrow columns of it,
those of mixed types as JSON texts. Runs in the caller's thread: see ``recorder``. Leaves to others: where the bytes go.

protocol.md: 6.11 (table lines).
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from fsrun.core.codec import to_word
from fsrun.core.values import as_number

MAX_CELLS = 20_000_000
MAX_COLUMNS = 10_000
MAX_BYTES = 256 << 20
_JSON = {b"fsrun": b"json"}
_EXACT = 2**53
_PLAIN: dict[type, str] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "text",
    bytes: "bytes",
    datetime.datetime: "time",
    datetime.date: "date",
}
_ARROW = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "text": pa.string(), "bytes": pa.binary()}
_ARROW |= {"date": pa.date32()}


@dataclass(frozen=True, slots=True)
class Encoded:
    """The bytes of a Parquet file, and what its index line says of it."""

    data: bytes
    rows: int
    columns: list[dict[str, Any]]


def encode(data: object, columns: Sequence[str] | None = None) -> Encoded:
    """Encode a table; ``ValueError`` says why something is none."""
    table = as_table(data, columns)
    if table.nbytes > MAX_BYTES:
        raise ValueError(f"a table of {table.nbytes >> 20} MB; {MAX_BYTES >> 20} MB at most: use add_artifact")
    described = [
        {"name": field.name, "type": str(field.type)} | ({"json": True} if field.metadata else {})
        for field in table.schema
    ]
    return Encoded(write(table), table.num_rows, described)


def as_table(data: object, columns: Sequence[str] | None = None) -> pa.Table:
    """What people have as an Arrow table that Parquet can hold; ``ValueError`` says why something is none."""
    found = _columns(data, columns)
    if not found:
        raise ValueError("a table needs a column")
    if len(found) > MAX_COLUMNS:
        raise ValueError(f"a table of {len(found)} columns; {MAX_COLUMNS} at most")
    names = _distinct([_text(name) for name, _ in found])
    arrays = [_column(values) for _, values in found]
    rows = {len(array) for array, _ in arrays}
    if len(rows) > 1:
        raise ValueError(f"columns of different lengths: {', '.join(map(str, sorted(rows)))}")
    fields = [
        pa.field(name, array.type, metadata=_JSON if mixed else None)
        for name, (array, mixed) in zip(names, arrays, strict=True)
    ]
    return pa.table([array for array, _ in arrays], schema=pa.schema(fields))


def write(table: pa.Table) -> bytes:
    """The bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=3)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _columns(data: Any, chosen: Sequence[str] | None) -> list[tuple[Any, Any]]:
    """Name and values of each column: an Arrow array where there is one, else a list."""
    if isinstance(chosen, str):
        raise ValueError("columns is a list of names")
    if callable(getattr(data, "to_arrow", None)):  # polars
        data = data.to_arrow()
    if callable(getattr(data, "reset_index", None)) and hasattr(data, "iloc"):
        return _chosen(_of_frame(data), chosen)
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        _check_cells(data.num_rows, data.num_columns)
        return _chosen(list(zip(data.column_names, data.columns, strict=True)), chosen)
    if isinstance(data, Mapping):
        found = [(name, _cells(values)) for name, values in islice(data.items(), MAX_COLUMNS + 1)]
        return _chosen(found, chosen)
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise ValueError(
            f"a table is a DataFrame, an Arrow table, a dict of columns or rows, not {type(data).__name__}"
        )
    rows = list(data)
    if rows and all(isinstance(row, Mapping) for row in rows):
        names = list(dict.fromkeys(name for row in rows for name in row)) if chosen is None else list(chosen)
        _check_cells(len(rows), len(names))
        return [(name, [row.get(name) for row in rows]) for name in names]
    return _of_rows(rows, chosen)


def _of_rows(rows: list[Any], chosen: Sequence[str] | None) -> list[tuple[Any, Any]]:
    if any(isinstance(row, str | bytes | Mapping) or not isinstance(row, Iterable) for row in rows):
        raise ValueError("rows are all dicts, or all lists of cells")
    cells = [list(row) for row in rows]
    width = max((len(row) for row in cells), default=0)
    names = list(chosen) if chosen is not None else [f"c{i}" for i in range(width)]
    if cells and {len(row) for row in cells} != {len(names)}:
        raise ValueError(f"rows of {width} cells for {len(names)} columns, or of different lengths")
    _check_cells(len(cells), len(names))
    return [(name, [row[i] for row in cells]) for i, name in enumerate(names)]


def _of_frame(frame: Any) -> list[tuple[Any, Any]]:
    """The columns of a pandas DataFrame; an index that says something comes first."""
    index = frame.index
    if type(index).__name__ != "RangeIndex" or index.name is not None:
        frame = frame.reset_index(allow_duplicates=True)
    _check_cells(len(frame), len(frame.columns))
    return [
        ("/".join(map(str, name)) if isinstance(name, tuple) else name, frame.iloc[:, i])
        for i, name in enumerate(frame.columns)
    ]


def _chosen(found: list[tuple[Any, Any]], chosen: Sequence[str] | None) -> list[tuple[Any, Any]]:
    if chosen is None:
        return found
    by_name = dict(found)
    missing = [name for name in chosen if name not in by_name]
    if missing:
        raise ValueError(f"no column {missing[0]!r}")
    return [(name, by_name[name]) for name in chosen]


def _cells(values: Any) -> Any:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ValueError("a column is a list of cells")
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if callable(getattr(values, "detach", None)) or hasattr(values, "__array__"):
        from fsrun.run.arrays import copy_of

        try:
            array = copy_of(values)
        except ValueError:
            return list(values)
        return pa.array(array) if array.ndim == 1 else array.tolist()
    values = list(values)
    _check_cells(len(values), 1)
    return values


def _check_cells(rows: int, columns: int) -> None:
    if rows * columns > MAX_CELLS:
        raise ValueError(f"a table of {rows} x {columns} cells; {MAX_CELLS} at most: use add_artifact")


def _column(values: Any) -> tuple[Any, bool]:
    """A column as an Arrow array, and whether it holds JSON texts."""
    if hasattr(values, "iloc"):
        if str(values.dtype) != "object":
            try:
                values = pa.array(values, from_pandas=True)
            except (pa.ArrowException, TypeError, ValueError):
                values = values.tolist()
        else:
            values = values.tolist()
    if isinstance(values, pa.Array | pa.ChunkedArray):
        if _fits_parquet(values.type):
            return values, False
        values = values.to_pylist()
    cells = [_cell(value) for value in values]
    kinds = {_PLAIN.get(type(cell), "other") for cell in cells if cell is not None}
    if kinds == {"int", "float"} and all(type(c) is not int or abs(c) <= _EXACT for c in cells):
        kinds = {"float"}
    if not kinds:
        return pa.array(cells, pa.string()), False
    if len(kinds) == 1 and "other" not in kinds:
        kind = next(iter(kinds))
        try:
            if kind == "text":
                cells = [None if cell is None else _text(cell) for cell in cells]
            return pa.array(cells, _ARROW.get(kind)), False
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            pass
    return pa.array(
        [None if cell is None else orjson.dumps(_plain(cell)).decode() for cell in cells], pa.string()
    ), True


def _fits_parquet(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_null(kind) or types.is_union(kind) or types.is_run_end_encoded(kind) or types.is_interval(kind):
        return False
    if types.is_nested(kind):
        return all(_fits_parquet(kind.field(i).type) for i in range(kind.num_fields)) and kind.num_fields > 0
    return not isinstance(kind, pa.BaseExtensionType) or _fits_parquet(kind.storage_type)


def _cell(value: Any) -> Any:
    """A cell as a plain Python value: what numbers of other libraries hold, dates, texts; the rest as it is."""
    kind = type(value)
    if value is None or kind in _PLAIN:
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, datetime.datetime):
        plain = getattr(value, "to_pydatetime", None)
        return None if value != value else plain(warn=False) if plain else value
    if isinstance(value, decimal.Decimal) or kind.__name__ in ("NAType", "NaTType"):
        return None if kind.__name__ in ("NAType", "NaTType") else str(value)
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", 1) == 0:
        inner = item()
        return inner if type(inner) in _PLAIN else _number(value)
    return value


def _number(value: Any) -> Any:
    try:
        return as_number(value)
    except ValueError:
        return str(value)


def _plain(value: Any, depth: int = 0) -> Any:
    """What JSON can hold of a value; what it cannot becomes text."""
    if isinstance(value, float):
        return to_word(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if depth < 32:
        if callable(getattr(value, "tolist", None)):
            value = value.tolist()
        if isinstance(value, Mapping):
            return {_text(key): _plain(inner, depth + 1) for key, inner in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [_plain(inner, depth + 1) for inner in value]
        if isinstance(value, float) and not math.isfinite(value):
            return to_word(value)
        if isinstance(value, int | float) or value is None:
            return value
    return _text(value)


def _text(value: object) -> str:
    return str(value).encode("utf-8", "replace").decode()


def _distinct(names: list[str]) -> list[str]:
    """Columns of one name (in any case: DuckDB tells no case apart) get a number."""
    taken: set[str] = set()
    found = []
    for name in names:
        name = name.replace("\0", "") or "column"
        candidate, number = name, 1
        while candidate.lower() in taken:
            number += 1
            candidate = f"{name}~{number}"
        taken.add(candidate.lower())
        found.append(candidate)
    return found
