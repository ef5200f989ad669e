"""How a run ended, decided from what was seen of the process: exception, exit code, signal, the user's own word.

Pure: no hook is set here (``life`` and ``signals`` set them), nothing is written (``run`` does).

protocol.md: 4 (status and reason of an end), 6 (the record End).
"""

from __future__ import annotations

import signal
import traceback
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from fsrun.core.timing import PREEMPTION_MEMORY
from fsrun.core.values import raise_if_meant

_STOPPING = (signal.SIGTERM, signal.SIGHUP)
_TEXT = 2_000
_TRACEBACK = 20_000
_REASON = 200


@dataclass(frozen=True, slots=True)
class Ending:
    """What goes into the ``.end``: status ``finished`` or ``failed``, and why."""

    status: str
    reason: str | None = None
    error: dict[str, Any] | None = None
    exit_code: int | None = None


FINISHED = Ending("finished")


@dataclass(frozen=True, slots=True)
class Noted:
    """A signal that the user's own handler took, and when (monotonic seconds)."""

    signum: int
    at: float
    in_hand: bool = False
    """The handler has not returned: the end was asked for by it."""


def of_signal(signum: int) -> Ending:
    """The end of a process that dies by a signal which nobody handles."""
    reason = {signal.SIGTERM: "terminated", signal.SIGHUP: "hangup"}.get(signal.Signals(signum))
    return Ending("failed", reason or signal.Signals(signum).name, exit_code=128 + signum)


def of_exception(error: BaseException | None) -> Ending:
    """The end that an exception means where it left the ``with`` block or the program; none is ``finished``.

    ``SystemExit`` counts by its code as the shell sees it: None, 0 and False are ``finished``, a number is ``exit N``,
    anything else is its text and exit code 1. ``KeyboardInterrupt`` is ``interrupted``. The rest keeps its traceback.
    """
    if error is None:
        return FINISHED
    if isinstance(error, SystemExit):
        return of_exit(error.code)
    if isinstance(error, KeyboardInterrupt):
        return Ending("failed", "interrupted", exit_code=130)
    described = describe(type(error), error, error.__traceback__)
    text = f"{described['type']}: {described['message']}" if described["message"] else described["type"]
    return Ending("failed", _cut(text.partition("\n")[0], _REASON), described, exit_code=1)


def of_exit(code: object) -> Ending:
    """The end that ``sys.exit(code)`` means."""
    if code is None:
        return replace(FINISHED, exit_code=0)
    if isinstance(code, int):
        # The system keeps eight bits of it, and so the parent sees 0 for 256.
        seen = int(code) & 0xFF
        return Ending("failed", f"exit {seen}", exit_code=seen) if seen else replace(FINISHED, exit_code=0)
    error = {"type": "SystemExit", "message": _cut(text_of(code), _TEXT), "traceback": ""}
    return Ending("failed", "exit 1", error, exit_code=1)


def describe(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> dict[str, Any]:
    """An exception as ``{"type", "message", "traceback"}``, bounded; never raises."""
    try:
        text = "".join(traceback.format_exception(kind, error, trace, limit=-50))
    except Exception:  # noqa: BLE001 - the exception's own methods may raise anything
        text = ""
    return {
        "type": kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}",
        "message": _cut(text_of(error), _TEXT),
        "traceback": text if len(text) <= _TRACEBACK else "...\n" + text[-_TRACEBACK:],
    }


def decide(
    seen: Ending,
    *,
    said: Ending | None = None,
    noted: Noted | None = None,
    now: float = 0.0,
    queue_finished: bool = False,
    hands_over: bool = False,
) -> Ending:
    """Return how the run ended.

    ``seen`` is what the process did, ``said`` the user's own word (``fail()``, ``finish(status)``), which wins: a
    later exit code 0 makes no failed run finished.

    A signal that the user's handler took (``noted``) less than half an hour ago makes an interrupt, an exit code that
    is not 0 and an end within the handler ``preempted``. A program that went on and came to its end well is preempted
    only where the signal asks to stop (SIGUSR1 and SIGUSR2 may mean "save a checkpoint now") and more than that says
    that it stopped early: it hands checkpoints over, or exits by ``sys.exit``, without having said ``finish_queue()``.
    """
    if said is not None:
        if said.status == "finished":
            return said
        return replace(said, error=said.error or seen.error, exit_code=seen.exit_code)
    orderly = seen.error is None and (seen.status == "finished" or seen.reason == "interrupted" or _is_exit(seen))
    recent = noted is not None and 0 <= now - noted.at <= PREEMPTION_MEMORY
    if noted is None or not recent or not orderly:
        return seen
    went_well = seen.status == "finished" and (
        queue_finished
        or not (noted.in_hand or (noted.signum in _STOPPING and (hands_over or seen.exit_code is not None)))
    )
    return seen if went_well else Ending("failed", "preempted", exit_code=seen.exit_code)


def _is_exit(ending: Ending) -> bool:
    return ending.reason is not None and ending.reason.startswith("exit ")


def text_of(value: object) -> str:
    """``str(value)``, whatever its methods do."""
    try:
        return str(value)
    except BaseException as error:  # noqa: BLE001 - a user's __str__ may raise anything
        raise_if_meant(error)
        return f"<{type(value).__name__}>"


def words_of(value: object) -> str:
    """What a user gives as the reason of an end, as text of bounded length."""
    return _cut(text_of(value), _TEXT)


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 3] + "..."
