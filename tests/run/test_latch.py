"""What a thread is given: in order, nothing lost, woken for each, and back in time however little time there is."""

from __future__ import annotations

import queue
import signal
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

import fsrun
from fsrun.run import latch
from fsrun.run.latch import Inbox, Latch
from tests.support.programs import PATIENCE, until

HERE = Path(fsrun.__file__).parent


def test_what_is_put_comes_in_order_and_then_nothing() -> None:
    inbox: Inbox[int] = Inbox()
    for number in range(3):
        inbox.put(number)
    assert [inbox.take(0.0), inbox.take(), inbox.take(5.0)] == [0, 1, 2]
    for wait in (-1.0, 0.0, 1e-6, 0.01):
        with pytest.raises(queue.Empty):
            inbox.take(wait)


@pytest.mark.parametrize("wait", [None, PATIENCE, float("inf")])
def test_who_takes_is_woken_by_each_of_many_threads(wait: float | None) -> None:
    inbox: Inbox[tuple[int, int]] = Inbox()
    threads = [
        threading.Thread(target=lambda own=own: [inbox.put((own, number)) for number in range(2000)])  # type: ignore[misc]
        for own in range(4)
    ]
    for thread in threads:
        thread.start()
    taken = [inbox.take(wait) for _ in range(8000)]
    for thread in threads:
        thread.join(PATIENCE)
    for own in range(4):
        assert [number for one, number in taken if one == own] == list(range(2000))


def test_a_time_that_is_over_before_the_wait_begins_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))  # as where a machine runs somebody else for a second between any two steps
    monkeypatch.setattr(latch, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    inbox: Inbox[int] = Inbox()
    for wait in (0.5, 1.5):
        with pytest.raises(queue.Empty):
            inbox.take(wait)


def test_waits_of_microseconds_after_an_item_come_to_their_end() -> None:
    """Where nobody puts anything more. ``SimpleQueue.get`` is stuck here, as a rule before the 20,000th round."""
    inbox: Inbox[int] = Inbox()
    rounds = 0

    def take() -> None:
        nonlocal rounds
        while rounds < 50_000:
            inbox.put(rounds)
            assert inbox.take(0.0) == rounds
            with suppress(queue.Empty):
                inbox.take(1e-6 * (1 + rounds % 3))
            rounds += 1

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert rounds == 50_000


def test_an_item_is_there_before_it_is_told_of() -> None:
    inbox: Inbox[int] = Inbox()
    told: list[bool] = []

    class Items(deque[int]):
        def append(self, item: int) -> None:
            told.append(not inbox._news.locked())
            super().append(item)

    inbox._items = Items()
    inbox.put(1)
    assert told == [False]
    assert not inbox._news.locked()


def test_a_latch_lets_all_go_on_that_wait_and_keeps_nobody() -> None:
    done = Latch()
    assert not done.wait(0.0)
    assert not done.wait(-1.0)
    waiting = [threading.Thread(target=done.wait, args=(wait,), daemon=True) for wait in (None, PATIENCE, float("inf"))]
    for thread in waiting:
        thread.start()
    until(lambda: len(done._waiting) == 3)
    done.set()
    done.set()
    for thread in waiting:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in waiting)
    assert done._waiting == []
    assert done.wait(0.0)


def test_whom_an_interrupted_set_did_not_wake_looks_for_itself() -> None:
    done = Latch()
    thread = threading.Thread(target=done.wait, daemon=True)
    thread.start()
    until(lambda: len(done._waiting) == 1)
    done.is_set = True  # what a handler leaves that raises just after it
    thread.join(PATIENCE)
    assert not thread.is_alive()


class Interrupted(BaseException):
    pass


def test_a_handler_that_raises_amid_a_put_leaves_nobody_asleep() -> None:
    inbox: Inbox[int] = Inbox()

    def take() -> None:
        while True:
            inbox.take()

    threading.Thread(target=take, daemon=True).start()
    armed = False

    def interrupt(signum: int, frame: object) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise Interrupted

    def shoot() -> None:
        while not over.wait(0.0002):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    over = threading.Event()
    shooter = threading.Thread(target=shoot)
    before = signal.signal(signal.SIGUSR1, interrupt)
    shooter.start()
    try:
        for _ in range(500):
            try:
                armed = True
                while True:
                    inbox.put(1)
            except Interrupted:
                until(lambda: not inbox._items)
    finally:
        armed = False
        over.set()
        shooter.join()
        signal.signal(signal.SIGUSR1, before)


def test_no_other_queue_without_a_lock_is_waited_for_with_a_time_limit() -> None:
    for path in HERE.rglob("*.py"):
        text = path.read_text()
        if "SimpleQueue" in text and path.name != "latch.py":
            assert ".get(timeout" not in text.replace(" ", ""), path
            assert ".get(True," not in text.replace(" ", ""), path
