"""Work behind the training: handlers that raise amid any call leave no lock taken; tidying up is done in batches."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from fsrun.core.indexes import MediaLine
from fsrun.disk.clock import SystemClock
from fsrun.disk.fs import LocalFileSystem
from fsrun.run.artifacts import Wish
from fsrun.run.background import Background
from fsrun.run.indexlog import IndexLog
from fsrun.run.latch import stands_on_lock
from tests.support.programs import PATIENCE


class Interrupted(Exception):
    """What the handler raises."""


@pytest.fixture
def alarm() -> Iterator[None]:
    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def background(tidy: Callable[[], bool] = lambda: True) -> Background:
    return Background("test", tidy, pytest.fail, max_items=4, max_bytes=1 << 20)


def interrupt_again_and_again(call: Callable[[], object]) -> None:
    """A lock that is left behind in one of twenty of these is found all but surely."""
    for n in range(300):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005 + n % 97 * 1e-6)
            while True:
                call()
        except Interrupted:
            assert not stands_on_lock(), n


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("what", ["put", "has_room", "drain", "wake"])
def test_a_handler_that_raises_amid_a_call_leaves_no_lock_taken(what: str) -> None:
    work = background()
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: work.put(1, lambda: None),
        "has_room": lambda: work.has_room(1),
        "drain": lambda: work.drain(PATIENCE),
        "wake": work.wake,
    }
    work.put(1, lambda: None)
    interrupt_again_and_again(calls[what])
    assert work.drain(PATIENCE)
    assert work.put(1, lambda: None)
    assert work.drain(PATIENCE)
    work.stop()
    assert not work.put(1, lambda: None)


@pytest.mark.usefixtures("alarm")
def test_a_handler_that_raises_amid_the_wait_for_an_index_leaves_no_lock_taken(tmp_path: object) -> None:
    os.makedirs(f"{tmp_path}/run/media")
    index = IndexLog(LocalFileSystem(), f"{tmp_path}/run", "media", "main", 1, SystemClock().monotonic, lambda: True)
    index.add(MediaLine(step=1, time=1.0, kind="text", tag="a", type="text/plain", path=None, size=1, text="a"))
    interrupt_again_and_again(lambda: index.wait(0.0))
    assert index.store()
    assert index.wait(PATIENCE)
    index.close()


@pytest.mark.usefixtures("alarm")
def test_a_handler_that_raises_amid_the_wait_for_an_artifact_does_not_stop_the_thread_that_keeps_it() -> None:
    wish = Wish("model", "model.pt", None, None, False)
    interrupt_again_and_again(lambda: wish.done.wait(0.0001))
    thread = threading.Thread(target=wish.done.set)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_what_is_left_over_is_looked_after_when_that_is_asked_for_while_nothing_is_done() -> None:
    tidied = threading.Semaphore(0)
    work = Background("test", lambda: tidied.release() is None, pytest.fail, max_items=4, max_bytes=1, retry=PATIENCE)
    work.put(1, lambda: None)
    assert work.drain(PATIENCE)
    assert tidied.acquire(timeout=PATIENCE)
    work.wake()
    assert tidied.acquire(timeout=PATIENCE)
    assert work.drain(PATIENCE)


def test_tidying_up_is_not_done_for_each_piece_of_many_and_is_done_before_anybody_counts_it_as_done() -> None:
    done: list[int] = []
    tidied: list[int] = []
    gate = threading.Event()

    def tidy() -> bool:
        tidied.append(len(done))
        return True

    work = Background("test", tidy, pytest.fail, max_items=1000, max_bytes=1 << 20)
    work.put(1, lambda: gate.wait(PATIENCE) and done.append(0))
    for n in range(1, 500):
        work.put(1, lambda n=n: done.append(n))
    gate.set()
    assert work.drain(PATIENCE)
    assert done == list(range(500))
    assert tidied[-1] == 500
    assert len(tidied) < 250


def test_what_fails_in_tidying_up_is_tried_again_and_counts_as_left_over() -> None:
    answers = [False, False, True]
    work = Background("test", lambda: answers.pop(0), pytest.fail, max_items=4, max_bytes=1, retry=0.01)
    work.put(1, lambda: None)
    assert work.drain(PATIENCE)
    assert answers == []
