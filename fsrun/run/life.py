"""The ways a process leaves: hooks that see them, one registry of the runs that are open in it.

Does: while a run is open, wraps ``sys.exit`` and ``sys.excepthook`` (each calls what stood there), ends open runs at
exit, makes a forked child forget them, takes the signals. Puts back what is still ours when the last run has ended.
Leaves to others: what the end says (``endings``), signals (``signals``), how a run is ended (``run``).

``os._exit`` and SIGKILL leave nothing here; others find such a job by its beats.
A ``raise SystemExit(n)`` outside a ``with`` block, not made by ``sys.exit``, shows that the program was left, but not
its code.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from opcode import opmap
from types import FrameType, TracebackType
from typing import Any, Protocol

from fsrun.core.timing import END_BY_SIGNAL_WAIT
from fsrun.run import endings
from fsrun.run.endings import Ending, Noted
from fsrun.run.signals import Signals

_RETURNS = frozenset(opmap[name] for name in ("RETURN_VALUE", "RETURN_CONST") if name in opmap)
_UNSEEN = Ending("finished", "SystemExit was raised, its code was not seen")


class OpenRun(Protocol):
    """What this module asks of a run."""

    def begin_end(self, seen: Ending, hurry: float | None) -> float:
        """Have a thread end the run; returns the seconds it may take: ``hurry``, else what ``finish`` takes."""
        ...

    def await_end(self, wait: float) -> None:
        """Wait for that end, ``wait`` seconds at most. Never raises."""
        ...

    def forget(self) -> None:
        """This is a forked child: be quiet from now on, touch no lock and no file."""
        ...


class Life:
    """The hooks of one process; there is one, made when this module is loaded."""

    def __init__(self) -> None:
        self._open: list[OpenRun] = []
        self._signals = Signals(self._end_by_signal)
        self._registered = False
        self._top: FrameType | None = None
        self._exit_code: tuple[object] | None = None
        self._uncaught: Ending | None = None
        self._hook: tuple[Any, Any] | None = None
        self._exit: tuple[Any, Any] | None = None

    @property
    def runs(self) -> tuple[OpenRun, ...]:
        """The runs that are open in this process, in the order of their opening."""
        return tuple(self._open)

    @property
    def noted(self) -> Noted | None:
        """The last signal that the user's own handler took."""
        return self._signals.noted

    def add(self, run: OpenRun) -> None:
        """A run was opened in this process."""
        if not self._registered:
            self._registered = True
            atexit.register(self._at_exit)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._in_child)
        self._open.append(run)
        self._wrap()
        self._signals.install()

    def remove(self, run: OpenRun) -> None:
        """A run was ended; with the last one the hooks go."""
        self._open = [other for other in self._open if other is not run]
        if not self._open:
            self._unwrap()
            self._signals.restore()

    def _wrap(self) -> None:
        if self._exit is None:
            self._exit = self._make_exit(sys.exit)
            sys.exit = self._exit[1]
        if self._hook is None:
            self._hook = self._make_hook(sys.excepthook)
            sys.excepthook = self._hook[1]
        if self._top is None:
            self._top = _top_frame()

    def _unwrap(self) -> None:
        if self._exit is not None and sys.exit is self._exit[1]:
            sys.exit = self._exit[0]
        if self._hook is not None and sys.excepthook is self._hook[1]:
            sys.excepthook = self._hook[0]
        self._exit = self._hook = self._top = None
        self._exit_code = self._uncaught = None

    def _make_exit(self, previous: Any) -> tuple[Any, Any]:
        def leave(status: object = None, /) -> Any:
            if threading.current_thread() is threading.main_thread():
                self._exit_code = (status,)
            return previous(status)

        leave.__name__, leave.__doc__ = "exit", previous.__doc__
        return previous, leave

    def _make_hook(self, previous: Any) -> tuple[Any, Any]:
        def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
            try:
                self._uncaught = endings.of_exception(error.with_traceback(trace))
            except Exception:  # noqa: BLE001 - the user's traceback must be printed whatever happens here
                pass
            return previous(kind, error, trace)

        return previous, excepthook

    def seen(self) -> Ending:
        """How the program is being left, asked at exit."""
        raised = _ended_by_exception(self._top)
        if raised is False or hasattr(sys, "ps1"):
            # What sys.exit or excepthook saw was caught, or belongs to a line of an interactive session.
            return endings.FINISHED
        if self._uncaught is not None:
            return self._uncaught
        if self._exit_code is not None:
            return endings.of_exit(self._exit_code[0])
        return _UNSEEN if raised else endings.FINISHED

    def _at_exit(self) -> None:
        if not self._open:
            return
        self._end_all(self.seen(), None)

    def _end_by_signal(self, signum: int) -> None:
        """In the thread of ``Signals``."""
        self._end_all(endings.of_signal(signum), END_BY_SIGNAL_WAIT - 0.1)

    def _end_all(self, seen: Ending, hurry: float | None) -> None:
        """End all open runs at once: they share the time there is."""
        began = time.monotonic()
        limits = [(run, run.begin_end(seen, hurry)) for run in reversed(self._open)]
        for run, limit in limits:
            run.await_end(max(0.01, limit - (time.monotonic() - began)))

    def _in_child(self) -> None:
        forgotten, self._open = self._open, []
        for run in forgotten:
            run.forget()
        if forgotten:
            self._unwrap()
        self._signals.restore(forked=True)
        self._signals = Signals(self._end_by_signal)


def _top_frame() -> FrameType | None:
    """The outermost frame of the main thread."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _ended_by_exception(frame: FrameType | None) -> bool | None:
    """Whether a frame that has ended was left by an exception; None where that cannot be told.

    A frame that returned stands at its return instruction, one that was unwound stands where it was left.
    """
    if frame is None or sys.implementation.name != "cpython":
        return None
    try:
        return frame.f_code.co_code[frame.f_lasti] not in _RETURNS
    except (IndexError, ValueError):
        return None


def is_main_imported_again() -> bool:
    """Whether a process of multiprocessing's ``spawn`` or ``forkserver`` is just importing the main module again.

    An ``init`` at the top level of that module belongs to the parent; one in the worker function is the user's will.
    """
    processes = sys.modules.get("multiprocessing.process")
    current: Callable[[], object] | None = getattr(processes, "current_process", None)
    if current is not None and getattr(current(), "_inheriting", False):
        return True
    # Other pools of processes (loky) import it by the same name, below which a worker's function never runs.
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__mp_main__":
            return True
        frame = frame.f_back
    return False


LIFE = Life()
