"""The rules on columns against a model that says them point by point, over folders that hypothesis makes up."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsrun.core.ids import MAIN
from fsrun.core.scalars import Point
from fsrun.disk.logs import POINTS
from fsrun.run import points
from fsrun.run.compact import compact
from fsrun.run.reader import COLUMNS, RunReader
from support import build

pytestmark = pytest.mark.property

TAGS = ("a", "b")
ENTRIES = ("X", "Y", "Z")


@dataclass(frozen=True)
class Log:
    job: str
    session: int
    lines: tuple[tuple[int, int, tuple[str, ...], str | None], ...]
    """(step, time, tags, entry) of each line; the value of a tag is the number of its line in the whole run."""


@dataclass(frozen=True)
class Made:
    """A run as it was made up."""

    logs: tuple[Log, ...]
    continues: frozenset[int]
    outcomes: dict[str, tuple[int, int | None, int, bool]]
    """Entry -> (step, main session, order, whether it has a line in the log of eval's session 1)."""

    def group(self, session: int) -> int:
        while session in self.continues:
            session -= 1
        return session


plain_lines = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 4), st.sampled_from([("a",), ("b",), ("a", "b")]), st.none()),
    max_size=6,
).map(tuple)


@st.composite
def runs(draw: st.DrawFn) -> Made:
    mains = [Log("main", n, draw(plain_lines)) for n in range(1, draw(st.integers(1, 3)) + 1)]
    sides = [Log(job, n, draw(plain_lines)) for job in ("eval", "probe") for n in range(1, draw(st.integers(0, 2)) + 1)]
    outcomes = {}
    for entry in draw(st.sets(st.sampled_from(ENTRIES))):
        session = draw(st.one_of(st.none(), st.integers(1, len(mains))))
        outcomes[entry] = (draw(st.integers(0, 6)), session, draw(st.integers(0, 3)), draw(st.booleans()))
    lined = [(step, 2, TAGS, f"{e}.1") for e, (step, _, _, has_line) in sorted(outcomes.items()) if has_line]
    # A line of an outcome that nobody put, and one that was written twice.
    lined += draw(st.sampled_from([[], [(3, 1, TAGS, "W.1")], lined[:1]]))
    if lined:
        first = next((log for log in sides if (log.job, log.session) == ("eval", 1)), Log("eval", 1, ()))
        sides = [log for log in sides if log is not first]
        sides.append(replace(first, lines=tuple(draw(st.permutations([*first.lines, *lined])))))
    continues = draw(st.sets(st.sampled_from(range(2, len(mains) + 1)))) if len(mains) > 1 else set()
    logs = sorted([*mains, *sides], key=lambda log: (log.job, log.session))
    return Made(tuple(logs), frozenset(continues), outcomes)


def score(step: int, entry: str) -> float:
    """What an outcome scored: told apart by step and entry."""
    return 1000.0 * step + ord(entry[0])


def stored(made: Made) -> list[Point]:
    """Every line's points, and those of outcomes that have no line; values tell them apart."""
    found, number = [], 0
    for log in made.logs:
        for step, time, tags, entry in log.lines:
            number += 1
            value = score(step, entry) if entry else float(number)
            found += [Point(log.job, tag, step, float(time), value, log.session, entry) for tag in tags]
    for entry, (step, _, _, has_line) in sorted(made.outcomes.items()):
        if not has_line:
            found += [Point("eval", tag, step, 2.0, score(step, entry), 1, f"{entry}.1") for tag in TAGS]
    return found


def all_values(made: Made) -> list[Point]:
    """What counts as logged: lines of outcomes only where the outcome stands, and each tag of one once."""
    kept: dict[object, Point] = {}
    for at, point in enumerate(stored(made)):
        if point.entry is None:
            kept[at] = point
        elif point.entry[:-2] in made.outcomes:
            kept.pop((point.entry, point.tag), None)
            kept[point.entry, point.tag] = point
    return list(kept.values())


def what_counts(made: Made) -> set[Point]:
    """The rules of protocol.md 8.3, each as a question about pairs of points."""
    every = list(enumerate(all_values(made)))
    mains = [(at, p) for at, p in every if p.job == MAIN and p.entry is None]

    def voided(p: Point) -> bool:
        """Whether a later group of main's sessions logged the tag at this step or an earlier one."""
        return any(
            q.tag == p.tag and q.step <= p.step and made.group(q.session) > made.group(p.session) for _, q in mains
        )

    def void_outcome(p: Point) -> bool:
        session = made.outcomes[p.entry[:-2]][1] if p.entry else None
        if session is None:
            return False
        before = [q for _, q in mains if made.group(q.session) == made.group(session) and q.step <= p.step]
        last = max((q.step for q in before), default=None)
        return any(voided(q) for q in before if q.step == last)

    def rank(p: Point) -> tuple[int, int]:
        _, session, order, _ = made.outcomes[p.entry[:-2]] if p.entry else (0, None, 0, False)
        return (-1 if session is None else made.group(session), order)

    plain = [
        (at, p)
        for at, p in every
        if p.job != MAIN
        and p.entry is None
        and not any(
            q.entry is None and (q.job, q.tag, q.step) == (p.job, p.tag, p.step) and later > at for later, q in every
        )
    ]
    outcomes = [(at, p) for at, p in every if p.entry is not None and not void_outcome(p)]
    best = [
        (at, p)
        for at, p in outcomes
        if not any((q.tag, q.step) == (p.tag, p.step) and (rank(q), j) > (rank(p), at) for j, q in outcomes)
    ]
    beside = [
        p
        for _, p in plain + best
        if not any(
            (q.tag, q.step) == (p.tag, p.step)
            and (q.time, q.entry is not None, q.job) > (p.time, p.entry is not None, p.job)
            for _, q in plain + best
        )
    ]
    main = [
        p
        for at, p in mains
        if not voided(p)
        and not any(q.tag == p.tag and q.step <= p.step for q in beside)
        and not any(
            (q.tag, q.step) == (p.tag, p.step) and made.group(q.session) == made.group(p.session) and j > at
            for j, q in mains
        )
    ]
    return {p._replace(entry=None) for p in main + beside}


def write(made: Made, root: Path, share: float = 1.0) -> build.RunFolder:
    """Write the run; of each log the first ``share`` of its bytes, the outcomes that have no line only if all."""
    run = build.run(root)
    number = 0
    for log in made.logs:
        data = b""
        for step, time, tags, entry in log.lines:
            number += 1
            value = score(step, entry) if entry else number
            data += build.line(step, dict.fromkeys(tags, value), entry=entry, time=time)
        run.log(log.job, log.session, data[: int(len(data) * share)])
    for log in made.logs:
        fence = None if log.session == 1 else {f"scalars/{log.job}.{log.session - 1}.jsonl": 1 << 30}
        run.lock(log.job, log.session, fence=fence, continues=log.job == MAIN and log.session in made.continues)
    for entry, (step, session, order, has_line) in made.outcomes.items():
        if has_line or share == 1:
            scores = dict.fromkeys(TAGS, score(step, entry))
            run.outcome(entry, step=step, scores=scores, main_session=session, order=order, time=2.0)
    return run


def rows(table: pa.Table) -> list[Point]:
    return [Point(*row) for row in zip(*(table[name].to_pylist() for name in COLUMNS), strict=True)]


@settings(max_examples=60, deadline=None)
@given(runs())
def test_what_counts_is_what_the_rules_say_and_each_step_of_a_tag_has_one_value(made: Made) -> None:
    with TemporaryDirectory() as folder:
        reader = RunReader(str(write(made, Path(folder))))
        table = reader.scalars()
        found = rows(table)
        assert set(found) == what_counts(made)
        assert [(p.tag, p.step) for p in found] == sorted({(p.tag, p.step) for p in found})
        for tag in TAGS:
            assert rows(reader.scalars(tag)) == [p for p in found if p.tag == tag]
        assert reader.last() == {p.tag: (p.step, p.value) for p in found}
        assert reader.tags() == sorted({p.tag for p in found})
        assert reader.problems == []


@settings(max_examples=25, deadline=None)
@given(runs())
def test_all_values_are_those_that_were_stored_in_the_order_of_their_logs(made: Made) -> None:
    with TemporaryDirectory() as folder:
        found = rows(RunReader(str(write(made, Path(folder)))).scalars(all=True))
        wanted = [p._replace(entry=None) for p in all_values(made)]
        assert found == sorted(wanted, key=lambda p: (p.tag, p.job, p.session))


@settings(max_examples=25, deadline=None)
@given(runs(), st.floats(0, 1))
def test_a_data_parquet_made_at_any_moment_changes_no_answer(made: Made, share: float) -> None:
    with TemporaryDirectory() as folder:
        run = write(made, Path(folder), share)
        compact(str(run))
        early = (run.path / "data.parquet").read_bytes() if (run.path / "data.parquet").exists() else None
        shutil.rmtree(run.path)
        run = write(made, Path(folder))
        plain = RunReader(str(run))
        wanted = [plain.scalars(), plain.scalars(all=True), plain.scalars("b"), plain.scalars(["a", "z"], all=True)]
        for data in (early, b""):
            if data:
                run.write("data.parquet", data)
            reader = RunReader(str(run))
            found = [
                reader.scalars(),
                reader.scalars(all=True),
                reader.scalars("b"),
                reader.scalars(["a", "z"], all=True),
            ]
            assert [rows(t) for t in found] == [rows(t) for t in wanted]
            assert reader.problems == []
            compact(str(run))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("cab"), st.sampled_from(["main", "eval"]), st.integers(1, 3)), max_size=12))
def test_rows_are_brought_into_order_and_equal_ones_stay_as_they_came(keys: list[tuple[str, str, int]]) -> None:
    made = [Point(job, tag, at, 0.0, 0.0, session) for at, (tag, job, session) in enumerate(keys)]
    wanted = sorted(made, key=lambda p: (p.tag, p.job, p.session))
    parts = [points.from_points([p]) for p in made]
    table = pa.concat_tables([POINTS.empty_table(), *parts]).unify_dictionaries()
    for few in (0, 100):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(points, "_FEW_RUNS", few)
            patch.setattr(points, "_FEW_CHUNKS", few)
            found = points.in_order(table)
        assert [Point(**row) for row in found.to_pylist()] == wanted
        assert points.runs_of(found).starts[-1] == len(wanted)


def test_where_nothing_conflicts_the_table_is_passed_on_untouched() -> None:
    table = points.from_points([Point("main", tag, step, 0.0, 1.0, 1) for tag in TAGS for step in range(5)])

    def never(*_: object) -> pa.Table:
        raise AssertionError("asked without need")

    rules = points.Rules(points.Sessions(), never, never, main_groups=1)
    assert rules.apply(table) is table


@pytest.mark.parametrize("cuts", [[], [0], [1, 1], [2, 3, 5]], ids=str)
def test_the_last_row_of_each_tag_is_found_in_any_chunks(cuts: list[int]) -> None:
    rows = [
        Point("main", tag, step, 0.0, step / 2, 1)
        for tag, count in (("a", 3), ("b", 1), ("c", 2))
        for step in range(count)
    ]
    whole = points.from_points(rows)
    bounds = [0, *cuts, len(rows)]
    pieces = [whole.slice(start, stop - start) for start, stop in pairwise(bounds)]
    table = points.last_of_tags(pa.concat_tables(pieces).unify_dictionaries())
    assert list(zip(table["tag"].to_pylist(), table["step"].to_pylist(), strict=True)) == [("a", 2), ("b", 0), ("c", 1)]
    one = points.last_of_tags(whole.slice(0, 1))
    assert (one["tag"].to_pylist(), one["step"].to_pylist()) == (["a"], [0])
    assert points.last_of_tags(POINTS.empty_table()).num_rows == 0
