"""Which thread of the daemon does what: one where that is enough, more where it hangs or does not keep up."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from fsrun.daemon.workers import _HANGS, CREW, LATE, MAX_CREW, Workers
from support.clock import FakeClock
from support.programs import until


class Gates:
    """Work that is known by the thread which does it, and ends when it is let."""

    def __init__(self) -> None:
        self.by: list[str] = []
        self.gate = threading.Event()

    def note(self) -> None:
        self.by.append(threading.current_thread().name)

    def hang(self) -> None:
        self.note()
        self.gate.wait(60.0)


@pytest.fixture
def gates() -> Gates:
    return Gates()


def submit(workers: Workers, work: Callable[[], None], count: int = 1) -> None:
    for _ in range(count):
        workers.submit("look", "/run", work)


def test_what_is_quick_is_done_by_one_thread(gates: Gates) -> None:
    clock = FakeClock()
    workers = Workers(clock)
    submit(workers, gates.note, 50)
    until(lambda: len(gates.by) == 50)
    clock.sleep(1.0)
    submit(workers, gates.note, 50)
    until(lambda: len(gates.by) == 100)
    assert set(gates.by) == {"fsrun-look-0"}
    assert workers.hasten() is None


def test_another_joins_in_where_something_has_waited_for_a_moment(gates: Gates) -> None:
    clock = FakeClock()
    workers = Workers(clock)
    submit(workers, gates.hang)
    until(lambda: len(gates.by) == 1)
    submit(workers, gates.note)
    assert workers.hasten() == LATE
    assert gates.by == ["fsrun-look-0"]
    clock.sleep(LATE * 1.01)
    workers.hasten()
    until(lambda: len(gates.by) == 2)
    assert gates.by[1] == "fsrun-look-1"
    # The first one counts as stuck by now: what comes is not kept waiting for it.
    clock.sleep(LATE)
    submit(workers, gates.note)
    until(lambda: len(gates.by) == 3)
    assert gates.by[2] == "fsrun-look-1"
    gates.gate.set()


def test_kinds_do_not_wait_for_each_other(gates: Gates) -> None:
    workers = Workers(FakeClock())
    submit(workers, gates.hang)
    until(lambda: len(gates.by) == 1)
    workers.submit("tidy", "/run", gates.note)
    until(lambda: len(gates.by) == 2)
    gates.gate.set()


def test_where_all_hang_more_are_started_up_to_a_limit(gates: Gates) -> None:
    clock = FakeClock()
    workers = Workers(clock)
    for count in range(1, CREW + 1):
        submit(workers, gates.hang)
        until(lambda count=count: len(gates.by) == count)  # type: ignore[misc]
        clock.sleep(LATE * 1.01)
    submit(workers, gates.hang)
    assert len(gates.by) == CREW
    assert workers.hasten() == _HANGS / 10  # nobody can help yet: no need to ask at once
    for count in range(CREW + 1, MAX_CREW + 1):
        clock.sleep(_HANGS * 1.01)
        workers.hasten()
        until(lambda count=count: len(gates.by) == count)  # type: ignore[misc]
        submit(workers, gates.hang)
    clock.sleep(_HANGS * 1.01)
    workers.hasten()
    assert len(gates.by) == MAX_CREW == len(workers.at_work)
    gates.gate.set()
    until(lambda: len(gates.by) == MAX_CREW + 1)


def test_a_thread_that_cannot_be_had_is_tried_for_again(gates: Gates, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    workers = Workers(clock)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _refuse)
        submit(workers, gates.note, 2)
        assert workers.hasten() == LATE
    submit(workers, gates.hang)
    until(lambda: len(gates.by) == 3)
    clock.sleep(LATE * 1.01)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _refuse)
        submit(workers, gates.note)
        assert workers.hasten() == LATE
    clock.sleep(LATE * 1.01)
    workers.hasten()
    until(lambda: len(gates.by) == 4)
    assert gates.by == [*["fsrun-look-0"] * 3, "fsrun-look-1"]
    gates.gate.set()


def _refuse(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_thread_that_dies_of_its_work_is_not_counted_on(gates: Gates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)
    workers = Workers(FakeClock())

    def dies() -> None:
        gates.note()
        raise SystemExit

    submit(workers, dies)
    until(lambda: len(gates.by) == 1 and not workers._crews["look"].names)
    submit(workers, gates.note)
    until(lambda: len(gates.by) == 2)
    assert gates.by == ["fsrun-look-0", "fsrun-look-1"]
