"""Waiting for another thread without holding a lock: what the user's threads do, where a signal may come at any moment.

A handler of Python runs between any two steps of the main thread, on top of what it does, and may end the run or log.
Whoever it interrupts must therefore hold no lock that another thread of fsrun needs: the end would wait for a thread
that waits for the end. ``threading.Event`` and ``Condition`` have such a lock inside; a ``Latch``, an ``Inbox`` and a
``SimpleQueue`` have none. Where a lock cannot be avoided it comes from ``shared_lock``, and ``stands_on_lock`` tells a
handler's call that it must not wait.

Handlers raise (``sys.exit``, Ctrl-C). ``with`` on such a lock releases it whatever is raised in between. Not so
``with`` on a ``Condition`` over it: that is entered and left by functions of Python, amid which a handler may run, and
raise with the lock taken and nobody left to release it. So the lock is what is entered, also to wait or notify.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections import deque
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")

_LOOK_AGAIN = 1.0
"""Seconds after which a wait looks for itself: where a handler raises amid ``Latch.set``, not all are woken."""
_shared: list[weakref.ref[Any]] = []


class Latch:
    """Set once, for good; any number of threads may wait for it, also one on top of another (a signal handler)."""

    __slots__ = ("_waiting", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._waiting: list[Any] = []

    def set(self) -> None:
        """Let all go on that wait now or later."""
        self.is_set = True
        for own in tuple(self._waiting):
            try:
                own.release()
            except RuntimeError:  # another thread sets it at the same time
                continue

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, ``timeout`` seconds at most (None: as long as it takes); whether it is."""
        if self.is_set:
            return True
        deadline = None if timeout is None else time.monotonic() + timeout
        own = threading.Lock()  # of this call alone
        own.acquire()
        self._waiting.append(own)
        try:
            while not self.is_set:
                left = _LOOK_AGAIN if deadline is None else min(deadline - time.monotonic(), _LOOK_AGAIN)
                if left <= 0:
                    break
                own.acquire(timeout=left)
        finally:
            self._waiting.remove(own)
        return self.is_set


class Inbox(Generic[Item]):
    """What any number of threads put, and signal handlers amid that, for the one that takes, with a time limit.

    Not a ``SimpleQueue``: its ``get(timeout=...)`` looks twice before it waits, and where the time ran out in between
    it waits for ever (CPython 3.11.7; about once in ten thousand waits of microseconds, and where a busy machine runs
    others in between).
    """

    __slots__ = ("_items", "_news")

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._news = threading.Lock()
        """Free where something was put since the taker waited last, so that it looks once more before it waits."""
        self._news.acquire()

    def put(self, item: Item) -> None:
        """Add an item; never waits."""
        try:
            self._items.append(item)
        finally:  # No function of Python is called in here, amid which a handler could raise.
            try:
                self._news.release()
            except RuntimeError:  # said before; the taker has yet to look, and then finds this item, too
                pass

    def take(self, wait: float | None = None) -> Item:
        """The next item; raises ``queue.Empty`` where none comes in ``wait`` seconds (None: as long as it takes)."""
        deadline = None if wait is None else time.monotonic() + wait
        while not self._items:
            if deadline is None:
                self._news.acquire()
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                raise queue.Empty
            self._news.acquire(timeout=min(left, threading.TIMEOUT_MAX))
        return self._items.popleft()


def shared_lock() -> Any:
    """An ``RLock`` that threads of the user and of fsrun take."""
    lock = threading.RLock()
    _shared.append(weakref.ref(lock, _shared.remove))
    return lock


def stands_on_lock() -> bool:
    """Whether the calling thread holds a shared lock: it is in a signal handler, on top of work of fsrun."""
    return any(lock is not None and is_mine(lock) for lock in [known() for known in _shared])


def is_mine(lock: object) -> bool:
    """Whether the calling thread holds this ``RLock`` (or a ``Condition`` over one)."""
    return bool(lock._is_owned())  # type: ignore[attr-defined]
