"""A job that was stopped while it wrote its view, and the session that took it over meanwhile (protocol.md 4.8).

The one who was stopped is the real code on a file system that lets the other one in before each of its steps.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fsrun.disk import identity
from fsrun.disk.clock import SystemClock
from fsrun.disk.fs import LocalFileSystem
from fsrun.run.chain import close_session, look
from fsrun.run.opening import open_live
from fsrun.run.run import Run
from tests.support.fs import Operation, T, WrappedFS
from tests.support.programs import read

pytestmark = pytest.mark.interleaving
ARGUMENTS: dict[str, Any] = {
    "project": "p",
    "run_id": "r",
    "run_name": None,
    "job": "main",
    "config": None,
    "root": None,
    "handover": None,
    "timeout": 60.0,
    "strict": False,
    "ranks": "alone",
    "wait": 0.0,
    "hands_over": False,
    "on_fenced": "warn",
}


class StoppableClock(SystemClock):
    """A clock that moves on while the process is stopped."""

    gone = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.gone


class Interrupted(WrappedFS):
    """Calls ``other`` once, before the ``at``-th step from ``begin`` on that names the view or the folder of jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.at = -1
        self.other: Callable[[], None] = lambda: None

    def around(self, operation: Operation, call: Callable[[], T]) -> T:
        if self.at >= 0 and (operation.paths[-1].endswith(("run.json", "/jobs")) or ".tmp-" in operation.paths[0]):
            self.at -= 1
            if self.at < 0:
                other = threading.Thread(target=self.other)  # holds none of the locks that this one holds
                other.start()
                other.join()
        return call()


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSRUN_ROOT", str(tmp_path))
    monkeypatch.setenv("FSRUN_COMPACT", "0")
    monkeypatch.setenv("FSRUN_CAPTURE", "0")


def _next_session(path: str, *, ends: bool) -> Run:
    live = open_live(ARGUMENTS | {"config": {"second": True}})
    run = Run(live.opened.where, live.job, live, strict=False)
    assert run.path == path
    if ends:
        run.finish()
    return run


def _view(path: str) -> tuple[int, str]:
    view = read(Path(path, "run.json"))
    return view["session"], view["status"]


@pytest.fixture
def zombie() -> Iterator[tuple[Run, Interrupted, StoppableClock]]:
    fs, clock = Interrupted(), StoppableClock()
    live = open_live(ARGUMENTS, fs=fs, clock=clock)
    live.finish_wait = 5.0
    run = Run(live.opened.where, live.job, live, strict=False)
    yield run, fs, clock
    fs.at = -1
    run.finish()


@pytest.mark.parametrize("at", range(7))
def test_a_view_written_after_the_job_was_taken_over_does_not_stay(
    zombie: tuple[Run, Interrupted, StoppableClock], at: int
) -> None:
    run, fs, clock = zombie
    live = run._live
    assert live is not None

    def take_over() -> None:
        """What happens while the process is stopped for a minute."""
        clock.gone += 60
        local = LocalFileSystem()
        beats = look(local, run.path, "main").beats_of(1, None)
        me = identity.own()
        assert close_session(local, SystemClock(), run.path, "main", 1, beats=beats, reason="expired", found_by=me)
        _next_session(run.path, ends=True)

    fs.other = take_over
    fs.at = at
    live._look_around(0.0)
    happened = fs.at < 0
    if not happened:  # the view takes fewer steps
        fs.at = -1
        take_over()
    live._look_around(0.0)
    assert _view(run.path) == (2, "finished")


@pytest.mark.parametrize(("ends", "at"), [*itertools.product([True, False], range(12))])
def test_the_last_view_of_a_session_does_not_replace_one_of_the_next(
    zombie: tuple[Run, Interrupted, StoppableClock], ends: bool, at: int
) -> None:
    run, fs, _ = zombie
    opened: list[Run] = []

    def requeue() -> None:
        if look(LocalFileSystem(), run.path, "main").closed:
            opened.append(_next_session(run.path, ends=ends))
        else:
            fs.at = 0

    fs.other = requeue
    fs.at = at
    run.finish()
    if not opened:  # the end takes fewer steps
        fs.at = -1
        requeue()
    seen = _view(run.path)
    if ends:
        assert seen == (2, "finished")
    else:
        # What a later session that is open has written may be replaced at worst once: it writes again.
        opened[0]._live._look_around(0.0)  # type: ignore[union-attr]
        assert _view(run.path) == (2, "running")
        opened[0].finish()
        assert _view(run.path) == (2, "finished")
