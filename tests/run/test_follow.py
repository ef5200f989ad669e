from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fsrun.core.scalars import Point
from fsrun.run.compact import compact
from fsrun.run.reader import RunReader
from support import build
from support.build import RunFolder
from support.clock import FakeClock
from support.fs import CountingFS

pytestmark = pytest.mark.unit


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    made = build.run(tmp_path)
    made.session("main", 1, build.lines([0]), ended=None)
    return made


class Story:
    """A run that lives while it is followed: at each wait the next thing happens. Points are told with its number."""

    def __init__(self, run: RunFolder, *happenings: Callable[[], object]) -> None:
        self.clock = FakeClock()
        self.reader = RunReader(str(run), clock=self.clock)
        self._happenings = list(happenings)
        self.clock.on_sleep = self._next

    def _next(self, _: float) -> None:
        self._happenings.pop(0)()

    def told(self, **more: object) -> list[tuple[int, str, int, float]]:
        found: list[tuple[int, str, int, float]] = []
        for point in self.reader.follow(stop=lambda: not self._happenings, **more):  # type: ignore[arg-type]
            assert isinstance(point, Point)
            found.append((len(self.clock.slept), point.tag, point.step, point.value))
        return found


def nothing() -> None:
    pass


def test_points_come_at_the_look_after_they_were_logged(run: RunFolder) -> None:
    story = Story(
        run, lambda: run.log("main", 1, build.lines([1])), nothing, lambda: run.log("main", 1, build.lines([2]))
    )
    assert story.told() == [(0, "loss", 0, 0.0), (1, "loss", 1, 1.0), (3, "loss", 2, 2.0)]
    assert story.clock.slept == [0.5] * 3


def test_what_is_there_already_may_be_left_out(run: RunFolder) -> None:
    story = Story(run, lambda: run.log("main", 1, build.lines([1])))
    assert story.told(replay=False, poll=0.1) == [(1, "loss", 1, 1.0)]
    assert story.clock.slept == [0.1]


def test_a_line_counts_once_it_is_complete(run: RunFolder) -> None:
    story = Story(
        run, lambda: run.log("main", 1, b'{"step":1,"lo'), nothing, lambda: run.log("main", 1, b'ss":1}\n'), nothing
    )
    assert story.told(replay=False) == [(3, "loss", 1, 1.0)]


def test_a_hole_stops_it_until_a_new_session_begins(run: RunFolder) -> None:
    size = run.log("main", 1)
    story = Story(
        run,
        lambda: run.log("main", 1, b"\0\0\0\n", build.lines([1])),
        lambda: run.session("main", 2, build.lines([1], scale=10), ended=None, fence={"scalars/main.1.jsonl": size}),
    )
    assert story.told(replay=False) == [(2, "loss", 1, 10.0)]


def test_it_goes_on_into_new_sessions_and_jobs_and_spills(run: RunFolder) -> None:
    story = Story(
        run,
        lambda: run.session("main", 2, build.lines([1]), ended=None),
        lambda: run.session("eval", 1, build.lines([1], "acc"), ended=None),
        lambda: run.log("main", 2, build.lines([3]), piece=0),
    )
    assert story.told() == [(0, "loss", 0, 0), (1, "loss", 1, 1), (2, "acc", 1, 1), (3, "loss", 3, 3)]


def test_nothing_is_read_past_a_fence(run: RunFolder) -> None:
    size = run.log("main", 1)

    def take_over() -> None:
        run.log("main", 1, build.lines([1, 2]))
        run.session("main", 2, build.lines([1], scale=10), ended=None, fence={"scalars/main.1.jsonl": size})

    story = Story(run, take_over, lambda: run.log("main", 1, build.lines([3])))
    assert story.told(replay=False) == [(1, "loss", 1, 10.0)]


def test_compaction_neither_repeats_nor_hides_a_point(run: RunFolder) -> None:
    compact(str(run))
    story = Story(
        run,
        lambda: run.log("main", 1, build.lines([1])),
        lambda: compact(str(run)),
        lambda: run.log("main", 1, build.lines([2])),
    )
    assert story.told() == [(0, "loss", 0, 0), (1, "loss", 1, 1), (3, "loss", 2, 2)]


def test_an_outcome_comes_once_with_or_without_its_line(run: RunFolder) -> None:
    line = build.line(1, acc=0.5, entry="X.1")
    run.session("eval", 1, build.line(9, acc=0.1, entry="ghost.1"), ended=None)
    story = Story(
        run,
        lambda: run.outcome("X", step=1, scores={"acc": 0.5}),
        lambda: run.log("eval", 1, line),
        lambda: run.outcome("Y", step=2, scores={"acc": 0.6}, state="failed"),
        lambda: (
            run.log("eval", 1, build.line(2, acc=0.7, entry="Y.2")),
            run.outcome("Y", 2, step=2, scores={"acc": 0.7}),
        ),
    )
    assert story.told(tags="acc") == [(1, "acc", 1, 0.5), (4, "acc", 2, 0.7)]


def test_a_line_waits_for_its_outcome(run: RunFolder) -> None:
    run.session("eval", 1, build.line(1, acc=0.5, entry="X.1"), ended=None)
    story = Story(run, nothing, lambda: run.outcome("X", step=1, scores={"acc": 0.5}))
    assert story.told(jobs=["eval"]) == [(2, "acc", 1, 0.5)]


def test_it_ends_after_what_the_last_job_logged(run: RunFolder) -> None:
    run.session("eval", 1, build.lines([0], "acc"))
    clock = FakeClock()

    def end(_: float) -> None:
        run.log("main", 1, build.lines([1]))
        run.end("main", 1)

    clock.on_sleep = end
    reader = RunReader(str(run), clock=clock)
    assert [(p.tag, p.step) for p in reader.follow()] == [("acc", 0), ("loss", 0), ("loss", 1)]
    assert len(clock.slept) == 1


def test_a_closed_run_is_told_and_done(run: RunFolder) -> None:
    run.end("main", 1)
    clock = FakeClock()
    assert [p.step for p in RunReader(str(run), clock=clock).follow()] == [0]
    assert clock.slept == []


def test_it_ends_where_the_run_is_gone(run: RunFolder) -> None:
    story = Story(run, lambda: run.path.rename(run.path.with_name("moved")), nothing)
    assert story.told() == [(0, "loss", 0, 0.0)]
    assert len(story.clock.slept) == 1


def test_faulty_lines_are_named_once_with_their_number(run: RunFolder) -> None:
    story = Story(
        run, lambda: run.log("main", 1, b"x\n"), lambda: run.log("main", 1, b"y\n", build.lines([1])), nothing
    )
    assert [step for _, _, step, _ in story.told()] == [0, 1]
    assert [(p.path, p.line) for p in story.reader.problems] == [
        ("scalars/main.1.jsonl", 2),
        ("scalars/main.1.jsonl", 3),
    ]


def test_a_look_at_a_quiet_run_opens_only_what_may_grow(run: RunFolder) -> None:
    run.session("main", 2, build.lines([1]), ended=None)
    fs = CountingFS()
    clock = FakeClock()
    clock.on_sleep = lambda _: fs.reset() if len(clock.slept) == 2 else None
    list(RunReader(str(run), fs=fs, clock=clock).follow(stop=lambda: len(clock.slept) == 2))
    assert fs.counts == {"names": 3, "open": 1}
