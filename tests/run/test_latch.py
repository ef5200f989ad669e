"""What a thread is given: in order, nothing lost, woken for each, and back in time however little time there is."""

from __future__ import annotations

import queue
import signal
import threading
import time
from pathlib import Path

import pytest

import fsrun
from fsrun.run.latch import Inbox
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
    """As on a machine that runs somebody else between two steps: ``SimpleQueue.get`` then waits for ever."""
    inbox: Inbox[int] = Inbox()
    clock = iter(range(100))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))  # a second passes from one step to the next
    back = threading.Event()

    def take() -> None:
        with pytest.raises(queue.Empty):
            inbox.take(0.5)
        with pytest.raises(queue.Empty):
            inbox.take(1.5)
        back.set()

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    thread.join(10.0)
    assert back.is_set()


def test_waits_of_microseconds_after_each_item_come_to_their_end() -> None:
    inbox: Inbox[int] = Inbox()
    rounds = 0
    over = False

    def take() -> None:
        nonlocal rounds
        while not over:
            try:
                inbox.take(1e-6 * (1 + rounds % 5))
            except queue.Empty:
                pass
            rounds += 1

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    for number in range(1000):
        inbox.put(number)
        time.sleep(0.0005)
    over = True
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert rounds > 1000


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
