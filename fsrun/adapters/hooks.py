"""Hooks of the user between waits: one order of steps, run with and without an event loop.

Does: drives a generator that yields what is to be called, and seconds to sleep, and is thrown whatever that raises, so
that its ``finally`` has the last word. Leaves to others: the order (``holding``).
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")
Hook = Callable[[], object]
Steps = Generator[Hook | float, None, T]


def drive(steps: Steps[T]) -> T:
    """Do what the steps say, and return what they return. Awaitables that a hook returns are awaited."""
    error: BaseException | None = None
    while True:
        try:
            wanted = next(steps) if error is None else steps.throw(error)
            error = None
            if callable(wanted):
                _call(wanted)
            else:
                time.sleep(wanted)
        except BaseException as raised:  # noqa: BLE001 - the steps decide, an interrupt comes through them too
            if inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED:
                return _end(raised, steps)
            error = raised


async def drive_async(steps: Steps[T]) -> T:
    """As ``drive``, in the running loop, which goes on meanwhile."""
    error: BaseException | None = None
    while True:
        try:
            wanted = next(steps) if error is None else steps.throw(error)
            error = None
            if callable(wanted):
                returned = wanted()
                if inspect.isawaitable(returned):
                    await returned
            else:
                await asyncio.sleep(wanted)
        except BaseException as raised:  # noqa: BLE001 - as above; a cancelled task ends in order too
            if inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED:
                return _end(raised, steps)
            error = raised


def _end(raised: BaseException, steps: Steps[T]) -> T:
    """What steps that have ended return; or raise."""
    if isinstance(raised, StopIteration):
        value: T = raised.value
        return value
    raise raised


def _call(hook: Hook) -> None:
    """Call a hook; what it returns is awaited, in a thread of its own where this one runs a loop already."""
    returned = hook()
    if not inspect.isawaitable(returned):
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(_wait_for(returned))
        return
    raised: list[BaseException] = []

    def work() -> None:
        try:
            asyncio.run(_wait_for(returned))
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            raised.append(error)

    thread = threading.Thread(target=work, name="fsrun-hook", daemon=True)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


async def _wait_for(awaitable: Any) -> None:
    await awaitable
