"""Work on a file system that may hang, done in a thread while somebody else must go on in time.

Does: runs one piece of work after the other, in order, in a daemon thread; says whether it answers. Leaves to others:
what is done, and how long it is waited for (``holding``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from queue import SimpleQueue
from typing import Generic, TypeVar

from fsrun.run.latch import Latch

T = TypeVar("T")
_POLLS = (0.001, 0.05)


class Unanswered(Exception):
    """Work that has not come to its end in time; it goes on, and nobody waits for it."""


class Answer(Generic[T]):
    """What a piece of work comes to."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._value: list[T] = []
        self._error: BaseException | None = None
        self.done = Latch()

    def run(self) -> None:
        """Do it."""
        try:
            self._value.append(self._work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the answer is read
            self._error = error
        finally:
            self.done.set()

    def wait(self, until: float) -> Generator[float, None, T]:
        """Yield seconds to sleep until it is done; raise what it raised, or ``Unanswered`` at ``until``."""
        pause = _POLLS[0]
        while not self.done.is_set:
            left = until - time.monotonic()
            if left <= 0:
                raise Unanswered
            yield min(pause, left)
            pause = min(2 * pause, _POLLS[1])
        if self._error is not None:
            raise self._error
        return self._value[0]


class Aside:
    """A thread that does what it is given, in order, until ``end``. Raises ``RuntimeError`` where none can start."""

    def __init__(self) -> None:
        self._given: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._last: Latch | None = None
        self.thread = threading.Thread(target=self._run, name="fsrun-held", daemon=True)
        self.thread.start()

    @property
    def answers(self) -> bool:
        """Whether all that was given is done."""
        return self._last is None or self._last.is_set

    def start(self, work: Callable[[], T]) -> Answer[T]:
        """Give it work, which is done after what it was given before."""
        answer = Answer(work)
        self._last = answer.done
        self._given.put(answer.run)
        return answer

    def ask(self, work: Callable[[], T], until: float) -> Generator[float, None, T]:
        """Give it work and wait for the answer, ``until`` at the latest."""
        return (yield from self.start(work).wait(until))

    def end(self) -> None:
        """Let the thread end after what it was given."""
        self._given.put(None)

    def _run(self) -> None:
        while (work := self._given.get()) is not None:
            work()
