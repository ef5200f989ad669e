"""Who may work in a thread, decided by the event loop: no thread of a pool waits for another one.

Requests that are the same share one piece of work. Work on one thing, a *lane*, has some threads at most; the rest of
it waits here, and is given up with the last one who asked for it. A thread that hangs keeps its place in its lane.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any, TypeVar

_T = TypeVar("_T")


class Turns:
    """Lanes into one pool. All of it is for one event loop."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._lanes: dict[Hashable, tuple[asyncio.Semaphore, list[None]]] = {}
        """Free places, and an item for each who has one or waits."""
        self._shared: dict[Hashable, tuple[asyncio.Task[Any], list[None]]] = {}

    async def share(self, key: Hashable, lane: Hashable, width: int, work: Callable[[], _T]) -> _T:
        """The result of ``work``, which is done once for all who ask for ``key`` meanwhile; ``width``: of the lane."""
        if key not in self._shared:
            self._shared[key] = asyncio.ensure_future(self._do(lane, width, work)), []
        task, asking = self._shared[key]
        asking.append(None)
        try:
            result: _T = await asyncio.shield(task)
            return result
        finally:
            asking.pop()
            if task.done() or not asking:
                task.cancel()
                if self._shared.get(key, (None,))[0] is task:
                    del self._shared[key]

    async def _do(self, lane: Hashable, width: int, work: Callable[[], _T]) -> _T:
        free, users = self._lanes.setdefault(lane, (asyncio.Semaphore(width), []))
        users.append(None)

        def leave() -> None:
            users.pop()
            if not users:
                self._lanes.pop(lane, None)

        try:
            await free.acquire()
        except BaseException:
            leave()
            raise
        loop = asyncio.get_running_loop()

        def release() -> None:
            free.release()
            leave()

        def over(made: Future[_T]) -> None:
            # At the end of the program the loop may be closed.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(release)

        try:
            made = self._pool.submit(work)
        except BaseException:
            release()
            raise
        # Of the thread's own end: whoever gives up waiting does not end it.
        made.add_done_callback(over)
        return await asyncio.wrap_future(made)
