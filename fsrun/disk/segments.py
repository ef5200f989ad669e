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
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeGuard

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fsrun.core import layout
from fsrun.core.records import MAJOR, PROTOCOL, major
from fsrun.disk.fs import FileSystem
from fsrun.disk.logs import POINTS

ROW_GROUP = 128 << 10
_KEY = b"fsrun"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """The metadata of a data.parquet."""

    sources: dict[str, int] = field(default_factory=dict)
    """Bytes consumed of each log, by path in the run folder."""
    outcomes: dict[str, tuple[int | None, int]] = field(default_factory=dict)
    """The ``done`` outcomes it took -> (main session that handed over, order)."""
    others: frozenset[str] = frozenset()
    """Outcomes that are not ``done``: they have no points and need not be opened again."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Lines and values that were skipped as faulty, by path."""
    plain: bool = False
    """No row replaces or voids another: the rows as they are count."""

    def encode(self) -> bytes:
        """Bytes of the metadata."""
        return orjson.dumps(
            {
                "protocol": PROTOCOL,
                "sources": self.sources,
                "outcomes": sorted(self.outcomes),
                "handed_over": {key: list(self.outcomes[key]) for key in sorted(self.outcomes)},
                "others": sorted(self.others),
                "skipped": self.skipped,
                "plain": self.plain,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Consumed | None:
        """Read the metadata; None where it is of another major version or is no such thing."""
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            return None
        if not isinstance(value, dict) or major(value.get("protocol")) != MAJOR or value.get("must_understand"):
            return None
        sources = value.get("sources")
        if not _is_sizes(sources):
            return None
        handed_over = value.get("handed_over")
        outcomes = value.get("outcomes")
        if not isinstance(handed_over, dict) or not isinstance(outcomes, list):
            # Another program's file that does not say who handed over: only what has none can be used.
            if outcomes:
                return None
            handed_over = {}
        try:
            taken = {str(key): (session, int(order)) for key, (session, order) in handed_over.items()}
        except (TypeError, ValueError):
            return None
        others, skipped = value.get("others"), value.get("skipped")
        return cls(
            sources=sources,
            outcomes=taken,
            others=frozenset(map(str, others)) if isinstance(others, list) else frozenset(),
            skipped=skipped if _is_sizes(skipped) else {},
            plain=value.get("plain") is True,
        )


def _is_sizes(value: object) -> TypeGuard[dict[str, int]]:
    return isinstance(value, dict) and all(type(n) is int and n >= 0 for n in value.values())


def encode(points: pa.Table, consumed: Consumed) -> pa.Buffer:
    """Bytes of a data.parquet. ``points``: of schema ``POINTS``, sorted as the module says."""
    table = points.replace_schema_metadata({_KEY: consumed.encode()})
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
        self.consumed = consumed

    def close(self) -> None:
        """Close the descriptor."""
        self._file.close()

    def read(self, tags: frozenset[str] | None = None) -> pa.Table:
        """The points (schema ``POINTS``), of some tags alone where they are given.

        Raises ``ArrowException`` or ``OSError`` where the file is damaged.
        """
        if tags is None:
            return _as_points(self._parquet.read(use_threads=True))
        wanted = pa.array(sorted(tags), pa.string())
        groups = []
        for group in range(self._parquet.num_row_groups):
            low, high = self._range(group)
            if low is None or any(low <= tag <= high for tag in tags):
                groups.append((group, low is None or low != high))
        parts = [POINTS.empty_table()]
        for mixed, some in groupby(groups, key=itemgetter(1)):
            table = _as_points(self._parquet.read_row_groups([group for group, _ in some]))
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
        file = os.fdopen(fs.open(f"{run_dir}/{layout.DATA}"), "rb")
    except FileNotFoundError:
        return None
    try:
        parquet = pq.ParquetFile(pa.PythonFile(file, mode="r"))
        consumed = Consumed.decode((parquet.metadata.metadata or {}).get(_KEY, b""))
        names = parquet.schema_arrow.names
    except (pa.ArrowException, OSError, ValueError):
        file.close()
        return None
    if consumed is None or not {"job", "tag", "step", "value", "session"}.issubset(names):
        file.close()
        return None
    return Segment(file, parquet, consumed)


def consumed_by(fs: FileSystem, run_dir: str) -> Mapping[str, int]:
    """Bytes that the data.parquet of a run has consumed of each log; empty where there is none to be read."""
    segment = open_segment(fs, run_dir) if layout.DATA in fs.names(run_dir) else None
    if segment is None:
        return {}
    try:
        return segment.consumed.sources
    finally:
        segment.close()
