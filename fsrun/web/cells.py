"""Rows of Arrow as JSON: a page of a Parquet file without the rest of it, and cells that stay small.

Leaves to others: which file (``content``). Loads pyarrow where it is used.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fsrun.core.errors import InvalidError
from fsrun.disk.beneath import open_file

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

COLUMNS = 200
"""Columns that are given at most."""
CELL = 1000
"""Characters of a cell of a table."""
_CELLS = 20_000
"""Cells of a page."""
_GROUP = 1 << 29
"""Bytes of a row group that is read, as the file says."""
_DEEP = 6
_WIDE = 100
_BATCH = 1024
_AT_ONCE = 1 << 26
"""Bytes that the rows of one batch may have at most, as far as the file says."""
_REPEATING = frozenset({"RLE_DICTIONARY", "PLAIN_DICTIONARY", "DELTA_BYTE_ARRAY"})
"""Encodings in which a value that is stored once, or the beginning of it, may stand in any number of rows."""
_NUMBER = 8


@contextmanager
def parquet(run_path: str, path: str) -> Iterator[pyarrow.parquet.ParquetFile]:
    """Open a Parquet file below a run. Raises ``OSError``; ``InvalidError`` for what is none, also while it is read."""
    with os.fdopen(open_file(run_path, path), "rb") as file, _read(file, path) as parquet:
        yield parquet


@contextmanager
def parquet_of(data: bytes, path: str) -> Iterator[pyarrow.parquet.ParquetFile]:
    """The same of bytes that were read from a file."""
    import pyarrow as pa

    with _read(pa.BufferReader(data), path) as parquet:
        yield parquet


@contextmanager
def _read(file: Any, path: str) -> Iterator[pyarrow.parquet.ParquetFile]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        yield pq.ParquetFile(file)
    except pa.ArrowException as error:
        raise InvalidError(f"{path} is no Parquet file: {_line(error)}") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise InvalidError(f"{path} is damaged: {_line(error)}") from None


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0][:CELL]


def page(file: pyarrow.parquet.ParquetFile, offset: int, limit: int) -> dict[str, Any]:
    """Some rows of a file, read from the row groups that hold them alone: ``{columns, rows, total, offset}``."""
    meta, schema = file.metadata, file.schema_arrow
    names = schema.names[:COLUMNS]
    limit = max(1, min(limit, _CELLS // max(1, len(names))))
    columns = [{"name": name, "type": str(kind)[:CELL]} for name, kind in zip(names, schema.types, strict=False)]
    rows: list[list[Any]] = []
    before = 0
    for number in range(meta.num_row_groups):
        group = meta.row_group(number)
        if before + group.num_rows > offset and len(rows) < limit:
            _require_small(group.total_byte_size)
            rows += _of_group(file, number, max(0, offset - before), limit - len(rows))
        before += group.num_rows
    hidden = len(schema.names) - len(names)
    return {"columns": columns, "rows": rows, "total": meta.num_rows, "offset": offset, "hidden_columns": hidden}


def whole(file: pyarrow.parquet.ParquetFile) -> pyarrow.Table:
    """All rows of a file. Raises ``InvalidError`` where they are more than is read at once."""
    import pyarrow as pa

    _require_small(sum(file.metadata.row_group(number).total_byte_size for number in range(file.num_row_groups)))
    batches, size = [], 0
    for number in range(file.num_row_groups):
        for batch in _batches(file, number):
            size += batch.nbytes
            _require_small(size)
            batches.append(batch)
    return pa.Table.from_batches(batches, file.schema_arrow).combine_chunks()


def _require_small(size: int) -> None:
    if size > _GROUP:
        raise InvalidError(
            f"these rows are {size >> 20} MB at once, {_GROUP >> 20} are shown at most: read it in Python"
        )


def _of_group(file: pyarrow.parquet.ParquetFile, number: int, skip: int, limit: int) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for batch in _batches(file, number, skip + limit):
        if skip < batch.num_rows:
            rows += rows_of(batch.slice(skip, limit - len(rows)), CELL)
        skip = max(0, skip - batch.num_rows)
        if len(rows) >= limit:
            break
    return rows


def _batches(file: pyarrow.parquet.ParquetFile, number: int, most: int = _BATCH) -> Iterator[pyarrow.RecordBatch]:
    """A row group in batches of so few rows that none is large, whatever its pages unfold to.

    What the file says of its size counts a value of a dictionary once, however many rows have it.
    """
    group = file.metadata.row_group(number)
    each = 1
    for place in range(group.num_columns):
        chunk, width = group.column(place), _width(file, group, place)
        if chunk.num_values > group.num_rows:
            # Lists: all of them may stand in one row, which cannot be read in parts.
            _require_small(chunk.num_values * (width if chunk.physical_type != "BYTE_ARRAY" else _NUMBER))
            width *= -(-chunk.num_values // max(1, group.num_rows))
        each += width
    rows = max(1, min(_BATCH, most, _AT_ONCE // each))
    return file.iter_batches(rows, row_groups=[number], use_threads=False)  # type: ignore[no-any-return]


def _width(file: pyarrow.parquet.ParquetFile, group: Any, place: int) -> int:
    """Bytes that one value of a column may have, beyond its share of what the file says."""
    chunk = group.column(place)
    if chunk.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return int(file.schema.column(place).length)
    if chunk.physical_type != "BYTE_ARRAY":
        return _NUMBER
    return int(chunk.total_uncompressed_size) if _REPEATING.intersection(chunk.encodings) else 0


def take(table: pyarrow.Table, places: list[int]) -> pyarrow.Table:
    """These rows of a table."""
    import pyarrow as pa

    return table.take(pa.array(places, pa.int64()))


def rows_of(data: pyarrow.Table | pyarrow.RecordBatch, most: int) -> list[list[Any]]:
    """Rows as lists of cells, of ``COLUMNS`` columns at most; texts of ``most`` characters at most."""
    columns = [values_of(column, most) for column in data.columns[:COLUMNS]]
    return [list(row) for row in zip(*columns, strict=True)]


def values_of(column: Any, most: int) -> list[Any]:
    """The cells of a column, also of one that holds what it should not, such as text that is none.

    One after the other: what is cut is let go of before the next one is unfolded.
    """
    return [cell(_plain(value), most) for value in column]


def _plain(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, ArithmeticError):
        return f"{getattr(scalar, 'value', '?')} as {scalar.type}"


def cell(value: Any, most: int, depth: int = 0) -> Any:
    """A value that JSON has, and not a large one: NaN by its name, bytes by their number, what JSON lacks as text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value if len(value) <= most else f"{value[:most]}… ({len(value) - most} more characters)"
    if isinstance(value, int):
        return value if abs(value) < 2**53 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, (list, tuple)) and depth < _DEEP:
        more = [f"… ({len(value) - _WIDE} more)"] if len(value) > _WIDE else []
        return [cell(one, most, depth + 1) for one in value[:_WIDE]] + more
    if isinstance(value, dict) and depth < _DEEP:
        return {str(name): cell(one, most, depth + 1) for name, one in list(value.items())[:_WIDE]}
    return str(value)[:most]
