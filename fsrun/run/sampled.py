"""Samples of evaluations, read back (protocol.md 6.16, 8): each file only as the outcome that names it says.

Reads only. A file that no outcome names, or another than it names, is never taken for an attempt's samples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsrun.core import layout
from fsrun.core.errors import InvalidError, UsageError
from fsrun.core.samples import COLUMNS, KEY, Kind
from fsrun.run.load import list_folder

if TYPE_CHECKING:
    from fsrun.disk.fs import FileSystem, Stat
    from fsrun.run.load import Loader

MAX_BYTES = 256 << 20
"""Of files that are read into one table."""
TYPES: dict[Kind, pa.DataType] = {"text": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
_FRONT = pa.schema([("entry", pa.string()), ("attempt", pa.int64()), ("step", pa.int64())])


@dataclass(frozen=True, slots=True)
class SamplesFile:
    """The samples of one attempt. ``state``: done or failed. ``path``: absolute, of the Parquet file."""

    entry: str
    attempt: int
    step: int | None
    state: str
    rows: int
    size: int
    path: str
    _fs: FileSystem = field(repr=False, compare=False)
    _sha256: str | None = field(repr=False, compare=False)

    def stat(self) -> Stat:
        """Facts of the file as it is now. Raises ``OSError``."""
        return self._fs.stat(self.path)

    def data(self) -> bytes:
        """The bytes of the file. Raises ``OSError``, and ``InvalidError`` where its outcome names others."""
        data = self._fs.read(self.path, 0, max(0, self.size) + 1)
        if len(data) != self.size:
            raise InvalidError(f"{self.path} has {len(data)} bytes, its outcome says {self.size}")
        if self._sha256 is not None and hashlib.sha256(data).hexdigest() != self._sha256:
            raise InvalidError(f"{self.path} is not what its outcome names: another digest")
        return data

    def read(self) -> pa.Table:
        """The samples as Arrow. Raises as ``data``, and ``InvalidError`` where they are no Parquet file."""
        try:
            return pq.read_table(pa.BufferReader(self.data())).replace_schema_metadata(None)
        except pa.ArrowException as error:
            raise InvalidError(f"{self.path} is no Parquet file: {error}") from None


def find_samples(loader: Loader, entry: str | None = None) -> list[SamplesFile]:
    """Every file of samples (of an entry) that stands and is named, by step, entry and attempt."""
    names = list_folder(loader.fs, loader.path(layout.EVALS))
    there = set(names)
    found = []
    for name in names:
        key = layout.parse_samples_name(name)
        if key is None or entry not in (None, key[0]):
            continue
        outcome = layout.outcome_name(*key)
        read = loader.outcome(outcome) if outcome in there else None
        if read is None or not read.samples:
            continue
        rows, size, digest = (read.samples.get(fact) for fact in ("rows", "size", "sha256"))
        if isinstance(rows, int) and isinstance(size, int) and (digest is None or isinstance(digest, str)):
            path = loader.path(f"{layout.EVALS}/{name}")
            found.append(SamplesFile(*key, read.step, read.state, rows, size, path, loader.fs, digest))
        else:
            loader.problems.add(f"{layout.EVALS}/{outcome}", None, "does not say rows and size of its samples")
    return sorted(found, key=lambda item: (item.step is None, item.step or 0, item.entry, item.attempt))


def read_samples(loader: Loader, files: Iterable[SamplesFile]) -> pa.Table:
    """The samples of some attempts in one table, with entry, attempt and step in front; what is faulty is left out."""
    files = list(files)
    size = sum(file.size for file in files)
    if size > MAX_BYTES:
        raise UsageError(
            f"{loader.run_dir}: the samples of {len(files)} evaluations are {size >> 20} MB, {MAX_BYTES >> 20} at most "
            "at once: name an entry or a step, or read one after the other of sampled()"
        )
    tables = []
    for file in files:
        try:
            table = file.read()
        except (InvalidError, OSError) as error:
            # One that cannot be read, a pipe or a device in its place, hides no other.
            loader.problems.add(file.path.removeprefix(f"{loader.run_dir}/"), None, str(error))
            continue
        front = [pa.repeat(pa.scalar(getattr(file, f.name), f.type), table.num_rows) for f in _FRONT]
        rest = [name for name in table.column_names if name not in _FRONT.names]
        tables.append(pa.table(front + [table[name] for name in rest], names=[*_FRONT.names, *rest]))
    if not tables:
        return pa.schema([*_FRONT, *((name, TYPES[COLUMNS[name]]) for name in KEY)]).empty_table()
    return pa.concat_tables(_alike(tables), promote_options="default")


def _alike(tables: list[pa.Table]) -> list[pa.Table]:
    """With every column of one type: as text where two files do not agree."""
    types: dict[str, set[Any]] = {}
    for table in tables:
        for column in table.schema:
            types.setdefault(column.name, set()).add(column.type)
    torn = {name for name, kinds in types.items() if len(kinds) > 1}
    return [_as_text(table, torn) for table in tables] if torn else tables


def _as_text(table: pa.Table, names: set[str]) -> pa.Table:
    for place, name in enumerate(table.column_names):
        if name in names:
            column = table.column(place)
            try:
                column = column.cast(pa.string())
            except pa.ArrowException:
                column = pa.array([None if v is None else str(v) for v in column.to_pylist()], pa.string())
            table = table.set_column(place, name, column)
    return table
