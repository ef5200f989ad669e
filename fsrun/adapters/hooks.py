"""Hooks of the user between waits: one order of steps, run with and without an event loop.

Does: drives a generator that yields what is to be called, and seconds to sleep, and is thrown whatever that raises, so
that its ``finally`` has the last word: also where the coroutine that drives it is closed or dropped amid a wait, and
where a task is cancelled again and again. Leaves to others: the order (``holding``).
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
Hook = Callable[[], object]
FINISHING = 30.0
"""Seconds that a call which must come to its end may go on for after its task was cancelled, or closed."""
_CLOSED_WAIT = 0.5


@dataclass(slots=True)
class Whole:
    """A hook that must come to its end: a task that is cancelled waits for it, and is cancelled then."""

    hook: Hook
    cancelled: BaseException | None = None
    """What came meanwhile, for whoever yielded this to raise in the end."""


Steps = Generator[Hook | Whole | float, None, T]


class _Exit(BaseException):
    """A ``GeneratorExit`` on its way through the steps, which could do nothing more after a real one."""


def drive(steps: Steps[T]) -> T:
    """Do what the steps say, and return what they return. Awaitables that a hook returns are awaited."""
    error: BaseException | None = None
    while True:
        try:
            wanted = next(steps) if error is None else steps.throw(error)
            error = None
            if isinstance(wanted, Whole):
                _call(wanted.hook)
            elif callable(wanted):
                _call(wanted)
            else:
                time.sleep(wanted)
        except BaseException as raised:  # noqa: BLE001 - the steps decide, an interrupt comes through them too
            if inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED:
                return _end(raised, steps)
            error = _Exit() if isinstance(raised, GeneratorExit) else raised


async def drive_async(steps: Steps[T], warn: Callable[[str], object]) -> T:
    """As ``drive``, in the running loop, which goes on meanwhile.

    Where this coroutine is closed, the rest is done at once and without the loop, of which ``warn`` is told.
    """
    error: BaseException | None = None
    while True:
        try:
            wanted = next(steps) if error is None else steps.throw(error)
            error = None
            if isinstance(wanted, Whole):
                await _finish(wanted)
            elif callable(wanted):
                returned = _called(wanted)
                if inspect.isawaitable(returned):
                    await returned
            else:
                await asyncio.sleep(wanted)
        except GeneratorExit as raised:
            if inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED:
                raise
            return _drive_closed(steps, raised, warn)
        except BaseException as raised:  # noqa: BLE001 - as above; a cancelled task ends in order too
            if inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED:
                return _end(raised, steps)
            error = raised


async def _finish(call: Whole) -> None:
    """Call a hook and wait for its end, however often this task is cancelled, within bounds."""
    returned = _called(call.hook)
    if not inspect.isawaitable(returned):
        return
    loop = asyncio.get_running_loop()
    work = loop.create_task(_wait_for(returned))
    deadline: float | None = None
    while not work.done():
        try:
            await asyncio.wait([work], timeout=None if deadline is None else deadline - loop.time())
        except asyncio.CancelledError as error:
            call.cancelled = call.cancelled or error
            deadline = deadline or loop.time() + FINISHING
        if deadline is not None and not work.done() and loop.time() >= deadline:
            work.cancel()
            raise TimeoutError(f"it had not come to its end {FINISHING:g} s after its task was cancelled")
    work.result()


def _called(hook: Hook) -> object:
    """Call a hook; a ``GeneratorExit`` of its own says nothing of the coroutine that drives it."""
    try:
        return hook()
    except GeneratorExit as error:
        raise _Exit from error


def _drive_closed(steps: Steps[T], exit_: GeneratorExit, warn: Callable[[str], object]) -> T:
    """Do the rest of the steps of a coroutine that is being closed: nothing can be awaited there any more."""
    error: BaseException | None = _Exit()
    while True:
        try:
            wanted = next(steps) if error is None else steps.throw(error)
            error = None
            if isinstance(wanted, float | int):
                time.sleep(min(wanted, _CLOSED_WAIT))
                continue
            returned = wanted.hook() if isinstance(wanted, Whole) else wanted()
            if inspect.isawaitable(returned):
                warn(
                    "the task that evaluates was dropped while rollouts were held: resume() is a coroutine and is run "
                    "in a thread with a loop of its own; whether rollouts go on is to be looked at"
                )
                _run_in_thread(returned, FINISHING)
        except BaseException as raised:
            if inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED:
                if isinstance(raised, _Exit | StopIteration):
                    raise exit_ from None
                raise
            error = _Exit() if isinstance(raised, GeneratorExit) else raised


def _end(raised: BaseException, steps: Steps[T]) -> T:
    """What steps that have ended return; or raise."""
    if isinstance(raised, StopIteration):
        value: T = raised.value
        return value
    if isinstance(raised, _Exit):
        raise GeneratorExit from None
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
    _run_in_thread(returned, None)


def _run_in_thread(returned: Any, limit: float | None) -> None:
    raised: list[BaseException] = []

    def work() -> None:
        try:
            asyncio.run(_wait_for(returned))
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            raised.append(error)

    thread = threading.Thread(target=work, name="fsrun-hook", daemon=True)
    thread.start()
    thread.join(limit)
    if thread.is_alive():
        raise TimeoutError(f"it had not come to its end after {limit:g} s")
    if raised:
        raise raised[0]


async def _wait_for(awaitable: Any) -> None:
    await awaitable
