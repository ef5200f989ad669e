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


@contextmanager
def parquet(run_path: str, path: str) -> Iterator[pyarrow.parquet.ParquetFile]:
    """Open a Parquet file below a run. Raises ``OSError``; ``InvalidError`` for what is none, also while it is read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with os.fdopen(open_file(run_path, path), "rb") as file:
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


def require_small(file: pyarrow.parquet.ParquetFile) -> None:
    """Raise ``InvalidError`` where the whole of a file, as it says, is more than is read at once."""
    _require_small(sum(file.metadata.row_group(number).total_byte_size for number in range(file.num_row_groups)))


def _require_small(size: int) -> None:
    if size > _GROUP:
        raise InvalidError(
            f"these rows are {size >> 20} MB at once, {_GROUP >> 20} are shown at most: read it in Python"
        )


def _of_group(file: pyarrow.parquet.ParquetFile, number: int, skip: int, limit: int) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for batch in file.iter_batches(_BATCH, row_groups=[number], use_threads=False):
        if skip < batch.num_rows:
            rows += rows_of(batch.slice(skip, limit - len(rows)), CELL)
        skip = max(0, skip - batch.num_rows)
        if len(rows) >= limit:
            break
    return rows


def take(table: pyarrow.Table, places: list[int]) -> pyarrow.Table:
    """These rows of a table."""
    import pyarrow as pa

    return table.take(pa.array(places, pa.int64()))


def rows_of(data: pyarrow.Table | pyarrow.RecordBatch, most: int) -> list[list[Any]]:
    """Rows as lists of cells, of ``COLUMNS`` columns at most; texts of ``most`` characters at most."""
    columns = [values_of(column, most) for column in data.columns[:COLUMNS]]
    return [list(row) for row in zip(*columns, strict=True)]


def values_of(column: Any, most: int) -> list[Any]:
    """The cells of a column, also of one that holds what it should not, such as text that is none."""
    try:
        values = column.to_pylist()
    except (ValueError, ArithmeticError):  # such as a time that no calendar has
        values = [_plain(value) for value in column]
    return [cell(value, most) for value in values]


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
