"""``data.parquet`` (protocol.md 6.9): points in long form, beside what was consumed to make them.

Columns ``job`` and ``tag`` (dictionaries), ``step`` (DELTA_BINARY_PACKED), ``time`` and ``value`` (float64,
BYTE_STREAM_SPLIT), ``session``, ``entry`` (dictionary, null but for points of outcomes); zstd. About 7 bytes a point of
a smooth series. Rows are sorted by tag, job and session, then as they were logged, so that row groups without a tag
need not be read.

Leaves to others: what to put in (``run.compact``), whether it may be used (``run.points``), publication
(``disk.store``).
"""

from __future__ import annotations

import os
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fsrun.core import layout
from fsrun.disk.footer import KEY, Consumed
from fsrun.disk.fs import NO_FILE, FileSystem, is_file
from fsrun.disk.logs import POINTS

ROW_GROUP = 128 << 10
_SMALL = 1 << 20
"""Bytes of a file that is read at once: asking for each of its columns would take longer."""
_FEW_ROWS = 1 << 15
"""Rows that one thread decodes sooner than several that have to be woken."""


def encode(points: pa.Table, consumed: Consumed) -> pa.Buffer:
    """Bytes of a data.parquet. ``points``: of schema ``POINTS``, sorted as the module says."""
    table = points.replace_schema_metadata({KEY: consumed.encode()})
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        use_dictionary=["job", "tag", "entry"],
        column_encoding={
            "step": "DELTA_BINARY_PACKED",
            "session": "DELTA_BINARY_PACKED",
            "time": "BYTE_STREAM_SPLIT",
            "value": "BYTE_STREAM_SPLIT",
        },
        row_group_size=ROW_GROUP,
    )
    return sink.getvalue()


class Segment:
    """An open data.parquet: one descriptor, so that a replacement while it is read does no harm. Close it."""

    def __init__(self, file: Any, parquet: pq.ParquetFile, consumed: Consumed) -> None:
        self._file = file
        self._parquet = parquet
        self._use_threads = parquet.metadata.num_rows > _FEW_ROWS
        self.consumed = consumed

    def close(self) -> None:
        """Close the descriptor."""
        self._file.close()

    def read(self, tags: frozenset[str] | None = None) -> pa.Table:
        """The points (schema ``POINTS``), of some tags alone where they are given.

        Raises ``ArrowException`` or ``OSError`` where the file is damaged.
        """
        if tags is None:
            return _as_points(self._parquet.read(use_threads=self._use_threads))
        wanted = pa.array(sorted(tags), pa.string())
        groups = []
        for group in range(self._parquet.num_row_groups):
            low, high = self._range(group)
            if low is None or any(low <= tag <= high for tag in tags):
                groups.append((group, low is None or low != high))
        parts = [POINTS.empty_table()]
        for mixed, some in groupby(groups, key=itemgetter(1)):
            table = _as_points(self._parquet.read_row_groups([g for g, _ in some], use_threads=self._use_threads))
            parts.append(table.filter(pc.is_in(table["tag"], value_set=wanted)) if mixed else table)
        return pa.concat_tables(parts)

    def _range(self, group: int) -> tuple[Any, Any]:
        """First and last tag of a row group; None where the file does not say."""
        columns = self._parquet.metadata.row_group(group)
        facts = columns.column(self._parquet.schema_arrow.names.index("tag")).statistics
        return (facts.min, facts.max) if facts is not None and facts.has_min_max else (None, None)


def _as_points(table: pa.Table) -> pa.Table:
    """Bring a table to ``POINTS``: what is missing is null, columns that are not known are dropped."""
    columns = []
    for wanted in POINTS:
        if wanted.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, wanted.type))
            continue
        column = table[wanted.name]
        if column.type != wanted.type:
            if pa.types.is_dictionary(wanted.type) and not pa.types.is_dictionary(column.type):
                column = column.cast(pa.string()).dictionary_encode()
            column = column.cast(wanted.type)
        columns.append(column)
    return pa.table(columns, schema=POINTS)


def open_segment(fs: FileSystem, run_dir: str) -> Segment | None:
    """Open the data.parquet of a run, which a listing has shown; None where it is gone or cannot be used."""
    try:
        descriptor = fs.open(f"{run_dir}/{layout.DATA}")
    except OSError as error:
        if not isinstance(error, FileNotFoundError) and error.errno not in NO_FILE:
            raise
        return None
    if not is_file(descriptor):
        os.close(descriptor)
        return None
    file = os.fdopen(descriptor, "rb")
    try:
        size = os.fstat(descriptor).st_size
        parquet = pq.ParquetFile(pa.PythonFile(file, mode="r") if size > _SMALL else pa.BufferReader(file.read()))
        consumed = Consumed.decode((parquet.metadata.metadata or {}).get(KEY, b""))
        names = parquet.schema_arrow.names
    except (pa.ArrowException, OSError, ValueError):
        file.close()
        return None
    if consumed is None or not {"job", "tag", "step", "value", "session"}.issubset(names):
        file.close()
        return None
    return Segment(file, parquet, consumed)
