"""The samples of an attempt: every prompt with its answer and grade, kept beside the outcome (protocol.md 6.16, 5.3).

Does: makes a Parquet file of what people have, stages it, puts it under the name that its outcome gets, clears what
no outcome names. Leaves to others: when (``attempts``), what is in the columns (``core.samples``), reading
(``sampled``).

Samples never cost a score: what goes wrong here is said, and the outcome stands without them.
"""

from __future__ import annotations

import errno
import hashlib
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from fsrun.core import layout
from fsrun.core.queue import Claim
from fsrun.core.records import PROTOCOL
from fsrun.core.samples import COLUMNS
from fsrun.disk.store import Store
from fsrun.run.moves import Moves
from fsrun.run.places import read_outcome
from fsrun.run.sampled import TYPES
from fsrun.run.tables import as_table, write

MAX_BYTES = 256 << 20
"""Of an attempt's samples in memory; of more, the first rows of each set are kept."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
"""Answers of a folder that will not take a large file a moment later either."""
_METADATA = b"fsrun"


@dataclass(frozen=True, slots=True)
class Samples:
    """The bytes of a samples file; ``note`` says what was left out of it."""

    data: bytes
    rows: int
    sha256: str
    note: str | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """How an outcome names them. The digest is of these bytes alone: they hold a random token."""
        return {"rows": self.rows, "size": len(self.data), "sha256": self.sha256}


def encode(samples: object) -> Samples | None:
    """Encode samples: an Arrow table, a DataFrame or a list of dicts; None where there are none.

    The key columns are added where they are missing, known columns get their type where that goes. ``ValueError`` says
    why something is no table.
    """
    if samples is None or (isinstance(samples, list | tuple) and not samples):
        return None
    table = as_table(samples)
    if not table.num_rows:
        return None
    table, note = _bounded(_typed(_keyed(table)))
    mark = {"protocol": PROTOCOL, "token": secrets.token_hex(8)}
    table = table.replace_schema_metadata({_METADATA: orjson.dumps(mark)})
    data = write(table)
    return Samples(data, table.num_rows, hashlib.sha256(data).hexdigest(), note)


def _keyed(table: pa.Table) -> pa.Table:
    """With all key columns, first: one set, each row a row of it, one answer each."""
    rows = table.num_rows
    for place, (name, value) in enumerate((("set", ""), ("row", None), ("sample", 0))):
        if name not in table.column_names:
            kind = TYPES[COLUMNS[name]]
            column = pa.array(range(rows), kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)
            table = table.add_column(place, name, column)
    return table


def _typed(table: pa.Table) -> pa.Table:
    """Known columns as what they are meant to hold; one that cannot be is kept as it came."""
    for place, name in enumerate(table.column_names):
        kind = COLUMNS.get(name)
        if kind is not None and table.field(place).type != TYPES[kind]:
            with suppress(pa.ArrowException):
                table = table.set_column(place, name, table.column(place).cast(TYPES[kind]))
    return table


def _bounded(table: pa.Table) -> tuple[pa.Table, str | None]:
    """The first rows of each set where all of them would be too much."""
    rows, size = table.num_rows, table.nbytes
    if size <= MAX_BYTES:
        return table, None
    share = MAX_BYTES / size
    sets = table.column("set").to_pylist()
    total: dict[Any, int] = {}
    for name in sets:
        total[name] = total.get(name, 0) + 1
    taken: dict[Any, int] = {}
    kept: list[int] = []
    for index, name in enumerate(sets):
        taken[name] = taken.get(name, 0) + 1
        if taken[name] <= max(1, int(total[name] * share)):
            kept.append(index)
    table = table.take(pa.array(kept, pa.int64()))
    return table, f"{len(kept)} of {rows} samples are kept: all of them are {size >> 20} MB, {MAX_BYTES >> 20} at most"


class Placing:
    """Samples on their way under the name that their outcome gets: staged once, put as often as that name changes."""

    def __init__(self, moves: Moves, samples: Samples) -> None:
        self.samples = samples
        self.problem: str | None = None
        """Why they are not kept."""
        self._moves = moves
        self._temp: str | None = None
        self._store: Store | None = None
        self._placed: set[tuple[str, int]] = set()

    def stage(self) -> None:
        """Write them under a hidden name: what may last, before anything is locked. Raises ``OSError``.

        After a crash: a temporary that carries the session.
        """
        self._store = self._moves.runs
        self._temp = self._store.stage(layout.EVALS, self.samples.data)

    @property
    def fields(self) -> Mapping[str, Any]:
        """The field of an outcome that names them."""
        return {"samples": self.samples.facts}

    def put(self, claim: Claim) -> bool:
        """Put them under a claim's name and attempt; whether they stand there. May be called again.

        After a crash: they stand, and no outcome names them.
        """
        if self._temp is None or self._store is None:
            return False
        name = layout.samples_name(claim.entry, claim.attempt)
        self._placed.add((claim.entry, claim.attempt))
        try:
            ours = self._store.publish(self._temp, layout.EVALS, name, self.samples.data) or self._stands(name)
        except OSError as error:
            self.problem = error.strerror or str(error)
            return False
        self.problem = None if ours else f"another file has the name {layout.EVALS}/{name}"
        return ours

    def _stands(self, name: str) -> bool:
        """Whether an earlier try has put them although nothing links them to the temporary (links are refused)."""
        assert self._store is not None
        path = self._store.path(layout.EVALS, name)
        data = self.samples.data
        return self._store.fs.stat(path).size == len(data) and self._store.fs.read(path, 0, len(data) + 1) == data

    def clear(self, kept: Claim | None) -> None:
        """Remove the temporary, and what was put under names whose outcome is another's. ``kept``: theirs stands.

        After a crash: files that no outcome names; whoever sees the outcome may remove them (protocol.md 5.3).
        """
        if self._temp is None or self._store is None:
            return
        with suppress(OSError):
            self._store.fs.unlink(self._temp)
        for entry, attempt in self._placed - ({(kept.entry, kept.attempt)} if kept else set()):
            with suppress(OSError):
                self._clear_at(entry, attempt)

    def _clear_at(self, entry: str, attempt: int) -> None:
        assert self._store is not None
        outcome = read_outcome(self._store, entry, attempt)
        name = layout.samples_name(entry, attempt)
        if outcome is None or (outcome.samples or {}).get("sha256") == self.samples.sha256 or not self._stands(name):
            return
        self._store.remove(f"{layout.EVALS}/{name}")
