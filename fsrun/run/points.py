"""Which points count, on columns (protocol.md 8.3): the rules of ``core.scalars`` applied to tables of ``POINTS``.

Does: brings tables into one order (tag, job, session, then as logged); drops lines of outcomes that do not stand; voids
and replaces. Tags in which nothing conflicts are passed on untouched, so the common case costs a few comparisons.

Leaves to others: reading files (``run.load``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fsrun.core.ids import MAIN
from fsrun.core.scalars import Handover, Point, Sessions, is_void, main_cuts
from fsrun.disk.logs import CODES, POINTS

_FEW_RUNS = 20_000
_FEW_CHUNKS = 256


@dataclass(frozen=True, slots=True)
class Runs:
    """Stretches of a table with one tag, job and session, in row order."""

    tags: list[int]
    """Codes in the dictionary of ``tag``."""
    jobs: list[str]
    sessions: list[int]
    starts: list[int]
    """First row of each, and the number of rows at the end."""

    def __len__(self) -> int:
        return len(self.tags)


def from_points(points: Iterable[Point]) -> pa.Table:
    """A table of some points."""
    rows = list(points)
    columns = zip(*rows, strict=True) if rows else [()] * len(POINTS)
    return pa.table(
        [
            pa.array(column, pa.string()).dictionary_encode().cast(spec.type)
            if spec.type == CODES
            else pa.array(column, spec.type)
            for spec, column in zip(POINTS, columns, strict=True)
        ],
        schema=POINTS,
    )


def _codes(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Codes of a column whose chunks share one dictionary."""
    return pa.chunked_array([chunk.indices for chunk in table[name].chunks], pa.int32())


def _dictionary(table: pa.Table, name: str) -> list[str]:
    column = table[name]
    return list(column.chunk(0).dictionary.to_pylist()) if column.num_chunks else []


def _sorted_dictionary(table: pa.Table, name: str) -> pa.Table:
    """The table with the dictionary of a column in order, so that codes compare as texts do."""
    column = table[name]
    words = column.chunk(0).dictionary
    order = pc.sort_indices(words)
    if len(words) < 2 or pc.all(pc.equal(order[1:], pc.add(order[:-1], 1))).as_py():
        return table
    rank = pc.sort_indices(order).cast(pa.int32())
    words = words.take(order)
    chunks = [pa.DictionaryArray.from_arrays(rank.take(chunk.indices), words) for chunk in column.chunks]
    return table.set_column(table.column_names.index(name), POINTS.field(name), pa.chunked_array(chunks, CODES))


def in_order(table: pa.Table) -> pa.Table:
    """The table sorted by tag, job and session; equal ones stay as they came. ``table``: one dictionary a column."""
    if not table.num_rows:
        return POINTS.empty_table()
    for name in ("tag", "job"):
        table = _sorted_dictionary(table, name)
    key = _keys(table)
    starts = _starts(key)
    firsts = key.take(pa.array(starts[:-1], pa.int64())).to_pylist()
    order = sorted(range(len(firsts)), key=firsts.__getitem__)
    if all(at == i for i, at in enumerate(order)):
        return table
    if len(order) > _FEW_RUNS:
        return table.take(pc.sort_indices(key)).combine_chunks()
    # A few long stretches: move them whole.
    ordered = pa.concat_tables([table.slice(starts[i], starts[i + 1] - starts[i]) for i in order])
    return ordered.combine_chunks() if ordered["step"].num_chunks > _FEW_CHUNKS else ordered


def _keys(table: pa.Table) -> pa.Array:
    """One number a row that orders rows by tag, job and session."""
    tags, jobs = _codes(table, "tag"), _codes(table, "job")
    sessions = table["session"]
    job_count, width = len(_dictionary(table, "job")), (pc.max(sessions).as_py() or 0) + 1
    kind = pa.int32() if len(_dictionary(table, "tag")) * job_count * width < 2**31 else pa.int64()
    key = pc.multiply(tags.cast(kind), pa.scalar(job_count * width, kind)) if job_count * width > 1 else tags
    if job_count > 1:
        key = pc.add(key, pc.multiply(jobs.cast(kind), pa.scalar(width, kind)))
    return pc.add(key, sessions.cast(kind)).combine_chunks()


def _starts(key: pa.Array) -> list[int]:
    """Rows whose key differs from that of the row before, the first row, and the number of rows."""
    changes = pc.indices_nonzero(pc.not_equal(key[1:], key[:-1])).cast(pa.int64())
    return [0, *pc.add(changes, 1).to_pylist(), len(key)]


def runs_of(table: pa.Table) -> Runs:
    """The stretches of a table that is in order."""
    if not table.num_rows:
        return Runs([], [], [], [0])
    starts = _starts(_keys(table))
    at = pa.array(starts[:-1], pa.int64())
    jobs = _dictionary(table, "job")
    return Runs(
        tags=_codes(table, "tag").take(at).to_pylist(),
        jobs=[jobs[code] for code in _codes(table, "job").take(at).to_pylist()],
        sessions=table["session"].take(at).to_pylist(),
        starts=starts,
    )


def standing(table: pa.Table, stands: Callable[[str], bool]) -> pa.Table:
    """All values that count as logged: no lines of outcomes that do not stand, each outcome's tag once (the last)."""
    entry = table["entry"]
    if entry.null_count == table.num_rows:
        return table
    codes = _codes(table, "entry")
    keep = [code for code, key in enumerate(_dictionary(table, "entry")) if stands(key)]
    counts = pc.or_(pc.is_null(codes), pc.is_in(codes, value_set=pa.array(keep, pa.int32())))
    if not pc.all(counts).as_py():
        table = table.filter(counts)
        if not table.num_rows:
            return POINTS.empty_table()
    rows = pa.table({"tag": _codes(table, "tag"), "entry": _codes(table, "entry"), "row": _row_numbers(table.num_rows)})
    named = rows.filter(pc.is_valid(rows["entry"]))
    last = named.group_by(["tag", "entry"]).aggregate([("row", "max")])["row_max"]
    if len(last) == named.num_rows:
        return table
    plain = rows.filter(pc.is_null(rows["entry"]))["row"]
    kept = pa.chunked_array([*last.chunks, *plain.chunks], pa.int64()).combine_chunks()
    return table.take(kept.take(pc.sort_indices(kept)))


def _row_numbers(count: int) -> pa.Array:
    return pa.array(range(count), pa.int64())


@dataclass(frozen=True, slots=True)
class Rules:
    """What is needed to decide: sessions, where an outcome was handed over, and main's points of all tags.

    ``handover`` and ``history`` are called only where something conflicts. ``history``: a table in order that holds
    main's points of all tags.
    """

    sessions: Sessions
    handover: Callable[[str], Handover]
    history: Callable[[], pa.Table]
    main_groups: int
    """How many groups of sessions main has."""

    def apply(self, table: pa.Table, voids: Voids | None = None) -> pa.Table:
        """The points that count, sorted by tag and step; no tag has a step twice. ``table``: in order, standing.

        ``voids``: of these rules, where somebody keeps them from one call to the next.
        """
        if not table.num_rows:
            return table
        runs = runs_of(table)
        step, tags = table["step"], _codes(table, "tag")
        falls = pc.indices_nonzero(pc.less_equal(step[1:], step[:-1])).cast(pa.int64())
        falls = pc.add(falls, 1)
        falls = falls.filter(pc.invert(pc.is_in(falls, value_set=pa.array(runs.starts, pa.int64()))))
        mixed = set(pc.unique(tags.take(falls)).to_pylist())
        mixed.update(tag for tag, before in zip(runs.tags[1:], runs.tags, strict=False) if tag == before)
        if self.main_groups > 1 and table["entry"].null_count < len(table):
            mixed.update(pc.unique(tags.filter(table["entry"].is_valid())).to_pylist())
        if not mixed:
            return table
        voids = voids or Voids(self)
        parts: list[pa.Table] = []
        done = first = 0
        while first < len(runs):
            last = first
            while last < len(runs) and runs.tags[last] == runs.tags[first]:
                last += 1
            if runs.tags[first] in mixed:
                start, stop = runs.starts[first], runs.starts[last]
                parts += [table.slice(done, start - done), self._tag(table, runs, first, last, voids)]
                done = stop
            first = last
        parts.append(table.slice(done))
        return pa.concat_tables(parts)

    def _tag(self, table: pa.Table, runs: Runs, first: int, last: int, voids: Voids) -> pa.Table:
        """The points of one tag that count, sorted by step."""
        main: dict[int, list[pa.Table]] = {}
        side: dict[str, list[pa.Table]] = {}
        outcomes: list[pa.Table] = []
        for i in range(first, last):
            rows = table.slice(runs.starts[i], runs.starts[i + 1] - runs.starts[i])
            if rows["entry"].null_count < rows.num_rows:
                outcomes.append(rows.filter(rows["entry"].is_valid()))
                rows = rows.filter(rows["entry"].is_null())
            if rows.num_rows and runs.jobs[i] == MAIN:
                main.setdefault(self.sessions.group(MAIN, runs.sessions[i]), []).append(rows)
            elif rows.num_rows:
                side.setdefault(runs.jobs[i], []).append(rows)
        others = [last_of_steps(pa.concat_tables(side[job])) for job in sorted(side)]
        if outcomes:
            others.append(self._outcomes(pa.concat_tables(outcomes), voids))
        beside = later_of_steps([t for t in others if t.num_rows])
        groups = {group: pa.concat_tables(parts) for group, parts in main.items()}
        cuts = main_cuts({group: pc.min(t["step"]).as_py() for group, t in groups.items()})
        if beside.num_rows:
            taken = beside["step"][0].as_py()
            cuts = {group: min(cuts.get(group, taken), taken) for group in groups}
        kept = []
        for group in sorted(groups):
            rows = groups[group]
            if group in cuts:
                rows = rows.filter(pc.less(rows["step"], cuts[group]))
            kept.append(last_of_steps(rows))
        return pa.concat_tables([*kept, beside])

    def _outcomes(self, rows: pa.Table, voids: Voids) -> pa.Table:
        """The outcomes of one tag that count: not void, and at equal steps the latest hand-over."""
        best: dict[int, tuple[Handover, int]] = {}
        again: set[int] = set()
        for at, (step, key) in enumerate(zip(rows["step"].to_pylist(), rows["entry"].to_pylist(), strict=True)):
            if self.main_groups > 1 and voids.has(key, step):
                continue
            if step not in best:
                best[step] = Handover(-2, 0, 0), at
                continue
            if step not in again:
                again.add(step)
                before = best[step][1]
                best[step] = self.handover(rows["entry"][before].as_py()), before
            best[step] = max(best[step], (self.handover(key), at))
        kept = [best[step][1] for step in sorted(best)]
        return rows if kept == list(range(rows.num_rows)) else rows.take(pa.array(kept, pa.int64()))


class Voids:
    """Which outcomes a resumed main job has voided; looks at main's points when it is first asked."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._groups: dict[int, tuple[Sequence[int], Sequence[bool]]] | None = None

    def has(self, key: str, step: int) -> bool:
        """Whether an outcome at a step is void."""
        group = self._rules.handover(key).group
        if group < 0:
            return False
        if self._groups is None:
            self.read(self._rules.history())
        assert self._groups is not None
        steps, voided = self._groups.get(group, ((), ()))
        return is_void(step, steps, voided)

    def read(self, table: pa.Table) -> None:
        """Look at main's points of all tags, which are given in order."""
        runs = runs_of(table)
        per_tag: dict[int, dict[int, list[tuple[int, Any]]]] = {}
        for i in range(len(runs)):
            if runs.jobs[i] == MAIN:
                rows = table.slice(runs.starts[i], runs.starts[i + 1] - runs.starts[i])
                rows = rows.filter(rows["entry"].is_null())
                if rows.num_rows:
                    group = self._rules.sessions.group(MAIN, runs.sessions[i])
                    steps = rows["step"].combine_chunks()
                    per_tag.setdefault(runs.tags[i], {}).setdefault(group, []).append((pc.min(steps).as_py(), steps))
        found: dict[int, list[pa.Table]] = {}
        for groups in per_tag.values():
            cuts = main_cuts({group: min(low for low, _ in parts) for group, parts in groups.items()})
            for group, cut in cuts.items():
                for _, steps in groups[group]:
                    found.setdefault(group, []).append(pa.table({"step": steps, "void": pc.greater_equal(steps, cut)}))
            for group in groups.keys() - cuts.keys():
                for _, steps in groups[group]:
                    void = pa.repeat(pa.scalar(False), len(steps))
                    found.setdefault(group, []).append(pa.table({"step": steps, "void": void}))
        self._groups = {group: self._history(pa.concat_tables(parts)) for group, parts in found.items()}

    @staticmethod
    def _history(table: pa.Table) -> tuple[Sequence[int], Sequence[bool]]:
        table = table.group_by("step").aggregate([("void", "any")]).sort_by("step")
        return table["step"].to_pylist(), table["void_any"].to_pylist()


def last_of_tags(table: pa.Table) -> pa.Table:
    """The last row of each tag. ``table``: sorted by tag, one dictionary."""
    if not table.num_rows:
        return table
    starts = _starts(_codes(table, "tag").combine_chunks())
    return table.take(pa.array([start - 1 for start in starts[1:]], pa.int64()))


def last_of_steps(table: pa.Table) -> pa.Table:
    """Of equal steps the last row, sorted by step."""
    step = table["step"].combine_chunks()
    if table.num_rows < 2 or pc.all(pc.greater(step[1:], step[:-1])).as_py():
        return table
    order = pc.sort_indices(step)
    ordered = step.take(order)
    ends = pa.concat_arrays([pc.not_equal(ordered[1:], ordered[:-1]), pa.array([True])])
    return table.take(order.filter(ends))


def later_of_steps(tables: Sequence[pa.Table]) -> pa.Table:
    """Of equal steps the row with the latest time; of equal times that of the later table. Sorted by step.

    ``tables``: sorted by step, no step twice.
    """
    if len(tables) < 2:
        return tables[0] if tables else POINTS.empty_table()
    table = pa.concat_tables(tables)
    early = pc.fill_null(table["time"], float("-inf"))
    order = pc.sort_indices(
        pa.table({"step": table["step"], "time": early}), [("step", "ascending"), ("time", "ascending")]
    )
    return last_of_steps(table.take(order))
