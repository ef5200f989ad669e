"""Samples of evaluations: prompts, answers and grades, a page at a time, those of two entries side by side.

Leaves to others: which files of samples count, and whether they are what their outcome names (``run.sampled``).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from fsrun.core.errors import InvalidError, NotFoundError
from fsrun.core.samples import KEY
from fsrun.web import cells
from fsrun.web.query import Query

if TYPE_CHECKING:
    import pyarrow

    from fsrun.run.reader import RunReader
    from fsrun.run.sampled import SamplesFile

_FILE = 64 << 20
"""Bytes of a file of samples that is read."""
_HELD = 4
_HELD_BYTES = 64 << 20
"""Samples that stay in memory for the next page: so many files, of so many bytes each."""
_CELL = 100_000
_ENTRIES = 2000
_SETS = 500


class Samples:
    """Gives pages of samples; called from several threads at once."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, int, int, int], pyarrow.Table] = OrderedDict()
        self._lock = threading.Lock()

    def answer(self, reader: RunReader, query: Query) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/samples``. Raises as ``Content`` says."""
        files = reader.sampled()
        entries = [
            {name: getattr(file, name) for name in ("entry", "attempt", "step", "state", "rows", "size")}
            for file in files[-_ENTRIES:]
        ]
        facts: dict[str, Any] = {"entries": entries, "problems": [str(one)[:1000] for one in reader.problems[:20]]}
        offset = query.integer("offset", 0, least=0, most=1 << 62) or 0
        limit = query.integer("limit", 50, least=1, most=500) or 1
        only = query.choice("only", ("all", "wrong", "changed"), "all")
        file = _pick(files, query, "entry", "attempt")
        if file is None:
            return facts | {"columns": [], "rows": [], "total": 0, "sets": []}
        table = self._table(reader, file)
        other = _pick(files, query, "beside", "beside_attempt") if query.text("beside") else None
        beside = None if other is None else self._table(reader, other)
        chosen = _chosen(table, beside, query.text("set"), only)
        page = cells.take(table, chosen[offset : offset + limit])
        facts |= {"entry": file.entry, "attempt": file.attempt, "step": file.step, "state": file.state}
        facts |= {"columns": page.column_names[: cells.COLUMNS], "rows": cells.rows_of(page, _CELL)}
        facts |= {"total": len(chosen), "offset": offset, "sets": _sets(table)}
        if other is not None and beside is not None:
            facts["beside"] = {
                "entry": other.entry,
                "attempt": other.attempt,
                "step": other.step,
                "columns": beside.column_names[: cells.COLUMNS],
                "rows": _matching(page, beside),
            }
        return facts

    def _table(self, reader: RunReader, file: SamplesFile) -> pyarrow.Table:
        inside = file.path.removeprefix(f"{reader.path}/")
        if file.size > _FILE:
            raise InvalidError(f"{inside} is {file.size >> 20} MB, {_FILE >> 20} are shown at most: read it in Python")
        seen = file.stat()
        key = (file.path, seen.inode, seen.size, seen.mtime_ns)
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        # What is looked at is what is read: bytes in memory.
        with cells.parquet_of(file.data(), inside) as parquet:
            table = cells.whole(parquet).replace_schema_metadata(None)
        if table.nbytes <= _HELD_BYTES:
            with self._lock:
                self._held[key] = table
                while len(self._held) > _HELD:
                    self._held.popitem(last=False)
        return table


def _pick(files: list[SamplesFile], query: Query, entry: str, attempt: str) -> SamplesFile | None:
    """The file that is asked for: the newest attempt, and of the newest step, where none is named."""
    name, number = query.text(entry), query.integer(attempt, least=0, most=1 << 62)
    found = [file for file in files if name in (None, file.entry) and number in (None, file.attempt)]
    if name is not None and not found:
        at = "" if number is None else f", attempt {number}"
        raise NotFoundError(f"no samples of {name[:200]!r}{at}")
    return next((file for file in reversed(found) if file.state == "done"), found[-1] if found else None)


def _column(table: pyarrow.Table, name: str) -> list[Any]:
    if table.column_names.count(name) != 1:
        return [None] * table.num_rows
    return cells.values_of(table[name], _CELL)


def _right(table: pyarrow.Table) -> list[bool]:
    """Whether each answer is right; one without a grade is not."""
    pairs = zip(_column(table, "correct"), _column(table, "score"), strict=True)
    return [correct is True if correct is not None else _is_full(score) for correct, score in pairs]


def _is_full(score: Any) -> bool:
    return isinstance(score, (int, float)) and score >= 1


def _keys(table: pyarrow.Table) -> list[tuple[Any, ...]]:
    columns = ([one if isinstance(one, int) else str(one) for one in _column(table, name)] for name in KEY)
    return list(zip(*columns, strict=True))


def _chosen(table: pyarrow.Table, beside: pyarrow.Table | None, name: str | None, only: str) -> list[int]:
    """Places of the rows that are wanted. ``changed``: right in one of both entries and not in the other."""
    sets, right = _column(table, "set"), _right(table)
    keep = [name is None or str(one) == name for one in sets]
    if only == "wrong":
        keep = [kept and not good for kept, good in zip(keep, right, strict=True)]
    elif only == "changed":
        there = {} if beside is None else dict(zip(_keys(beside), _right(beside), strict=True))
        both = zip(keep, right, _keys(table), strict=True)
        keep = [kept and key in there and there[key] != good for kept, good, key in both]
    return [place for place, kept in enumerate(keep) if kept]


def _matching(page: pyarrow.Table, beside: pyarrow.Table) -> list[list[Any] | None]:
    """For each row of a page the same sample of the other entry; None where it has none."""
    places = {key: place for place, key in enumerate(_keys(beside))}
    wanted = [places.get(key) for key in _keys(page)]
    rows = iter(cells.rows_of(cells.take(beside, [place for place in wanted if place is not None]), _CELL))
    return [None if place is None else next(rows) for place in wanted]


def _sets(table: pyarrow.Table) -> list[dict[str, Any]]:
    """Each set with its number of samples and of those that are wrong."""
    found: dict[str, list[int]] = {}
    for name, good in zip(_column(table, "set"), _right(table), strict=True):
        counted = found.setdefault(str(name), [0, 0])
        counted[0] += 1
        counted[1] += not good
    return [{"set": name, "total": total, "wrong": wrong} for name, (total, wrong) in list(found.items())[:_SETS]]
