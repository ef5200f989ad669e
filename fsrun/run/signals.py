"""Signals of a process that holds runs: the end is written, then the process dies as it would have without fsrun.

Does: takes SIGTERM and SIGHUP where they have their default disposition, has the open runs ended within five seconds
by a thread (the interrupted main thread may hold any lock), restores the default and sends the signal again. A main
thread that was interrupted in code of fsrun may hold a lock that this end needs: it goes on until the thread ends the
process. Where the user has a handler, notes the signal and calls it. A handler that the user installs later wins; if
it calls ours in turn, ours only notes.

A main thread that is stuck in C code runs no Python handler, and would now survive a SIGTERM that used to kill it. So
the C handler of the interpreter also wakes the thread through the wakeup descriptor, and the thread ends the process
if the main thread has not reacted. The descriptor is a socket that carries the sender's pid: a forked process that
inherited it wakes nobody.

Leaves to others: which end that is (``endings``), the other ways to leave (``life``).
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

from fsrun.core.timing import END_BY_SIGNAL_WAIT, STUCK
from fsrun.disk.fs import identity_of
from fsrun.run.endings import Noted

_DYING = (signal.SIGTERM, signal.SIGHUP)
_NOTED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_ORDER, _STOP, _NOTHING = 0, 255, 254
_CREDENTIALS = struct.Struct("3i")

Handler = Callable[[int, FrameType | None], Any]


class Signals:
    """The signal handlers of this process. ``end_all(signum)`` is called in a thread and ends the open runs."""

    def __init__(self, end_all: Callable[[int], None]) -> None:
        self._end_all = end_all
        self._ours: dict[int, tuple[Handler, Any]] = {}
        self._orders: deque[tuple[int, Any]] = deque()
        self._sockets: tuple[_Socket, _Socket] | None = None
        self._dying = False
        self._handling = 0
        self._noted: Noted | None = None

    @property
    def noted(self) -> Noted | None:
        """The last signal that the user's own handler took, and whether that handler runs now."""
        return None if self._noted is None else replace(self._noted, in_hand=self._handling > 0)

    def install(self) -> None:
        """Take the signals that are not taken yet. Does nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        for signum in _NOTED:
            self._take(signum)
        if self._ours and self._sockets is None:
            self._start_thread()

    def _take(self, signum: int) -> None:
        previous = signal.getsignal(signum)
        if signum in self._ours and previous is self._ours[signum][0]:
            return
        # The kernel spares process 1 of a container a signal that it does not handle: as before, it lives on.
        dies = previous is signal.SIG_DFL and signum in _DYING and os.getpid() != 1
        if not dies and not callable(previous):
            return
        handler = self._make_handler(previous)
        try:
            signal.signal(signum, handler)
        except (ValueError, OSError):
            return
        self._ours[signum] = (handler, previous)

    def _make_handler(self, previous: Any) -> Handler:
        def handle_for_fsrun(signum: int, frame: FrameType | None) -> Any:
            self._noted = Noted(signum, time.monotonic())
            if callable(previous):
                self._handling += 1
                try:
                    return previous(signum, frame)
                finally:
                    self._handling -= 1
            # A handler that was installed after ours and calls it has taken over: what happens next is its affair.
            if signal.getsignal(signum) is handle_for_fsrun:
                self._die(signum, frame)
            return None

        return handle_for_fsrun

    def _die(self, signum: int, frame: FrameType | None) -> None:
        """End the runs in the thread, wait for that, die. A second signal meanwhile changes nothing."""
        if self._dying:
            return
        self._dying = True
        if self._sockets is not None and _is_in_fsrun(frame):
            self._order(self._sockets[1], signum, None)
            return
        done = threading.Lock()
        done.acquire()
        if self._sockets is not None:
            try:
                self._order(self._sockets[1], signum, done)
                done.acquire(timeout=END_BY_SIGNAL_WAIT)
            except (OSError, RuntimeError):
                pass
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)

    def _order(self, theirs: _Socket, signum: int, done: Any) -> None:
        """Have the thread end the runs; another one, where the program closed the sockets by which it is woken."""
        self._orders.append((signum, done))
        if theirs.is_ours:
            theirs.socket.send(bytes([_ORDER]))
        else:
            threading.Thread(target=self._obey, args=(_load_die_by(),), name="fsrun-end", daemon=True).start()

    def _obey(self, die_by: Callable[[int], None]) -> None:
        signum, done = self._orders.popleft()
        self._end_all(signum)
        if done is None:
            die_by(signum)
        else:
            done.release()

    def _start_thread(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        theirs.setblocking(False)
        passcred = getattr(socket, "SO_PASSCRED", None)
        if passcred is not None:
            ours.setsockopt(socket.SOL_SOCKET, passcred, 1)
            self._wake_through(theirs)
        self._sockets = (_Socket(ours), _Socket(theirs))
        threading.Thread(target=self._watch, args=(self._sockets[0],), name="fsrun-signals", daemon=True).start()

    @staticmethod
    def _wake_through(theirs: socket.socket) -> None:
        try:
            before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
            if before != -1:
                signal.set_wakeup_fd(before)
        except (ValueError, OSError):
            return

    def _watch(self, held: _Socket) -> None:
        ours = held.socket
        die_by = _load_die_by()
        woken, deadline = 0, 0.0
        while held.is_ours:
            try:
                ours.settimeout(max(0.01, deadline - time.monotonic()) if woken else None)
                byte, sender = _receive(ours)
            except TimeoutError:
                byte, sender = _NOTHING, 0
            except OSError:
                return
            if self._orders:
                self._obey(die_by)
                woken = 0
            elif byte == _STOP:
                break
            elif sender == os.getpid() and byte in _DYING and not woken:
                woken, deadline = byte, time.monotonic() + STUCK
            elif woken and time.monotonic() >= deadline:
                if self._dies_by(woken) and not self._dying:
                    self._end_all(woken)
                    die_by(woken)
                woken = 0
        held.close()

    def _dies_by(self, signum: int) -> bool:
        """Whether ours is the handler and the default is what it stands for."""
        ours = self._ours.get(signum)
        return ours is not None and ours[1] is signal.SIG_DFL and signal.getsignal(signum) is ours[0]

    def restore(self, *, forked: bool = False) -> None:
        """Put back what stood there, where it is still ours. Outside the main thread: the handlers stay and pass on.

        ``forked``: this is a child process, which has no thread and shares the sockets with its parent.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        for signum, (handler, previous) in list(self._ours.items()):
            try:
                if signal.getsignal(signum) is handler:
                    signal.signal(signum, previous)
            except (ValueError, OSError):
                continue
            del self._ours[signum]
        self._close_sockets(forked=forked)

    def _close_sockets(self, *, forked: bool) -> None:
        if self._sockets is None:
            return
        theirs = self._sockets[1]
        self._sockets = None
        try:
            before = signal.set_wakeup_fd(-1)
            if before not in (-1, theirs.number):
                signal.set_wakeup_fd(before)
        except (ValueError, OSError):
            pass
        if not forked and theirs.is_ours:
            try:
                theirs.socket.send(bytes([_STOP]))  # the thread closes its end itself
            except OSError:
                pass
        theirs.close()


class _Socket:
    """A socket whose descriptor may be closed by the program, and its number given to another file."""

    __slots__ = ("_identity", "number", "socket")

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self.number = opened.fileno()
        self._identity = identity_of(self.number)

    @property
    def is_ours(self) -> bool:
        """Whether it is still the file that it was."""
        return identity_of(self.number) == self._identity

    def close(self) -> None:
        """Close it, or let go of what is another file by now."""
        if self.is_ours:
            self.socket.close()
        else:
            self.socket.detach()


def _is_in_fsrun(frame: FrameType | None) -> bool:
    """Whether the code that was interrupted is fsrun's, or was called by it."""
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("fsrun."):
            return True
        frame = frame.f_back
    return False


def _receive(ours: socket.socket) -> tuple[int, int]:
    """One byte and the pid that sent it (0 where the system does not say)."""
    data, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
    if not data:
        raise OSError("closed")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == getattr(socket, "SCM_CREDENTIALS", -1):
            return data[0], _CREDENTIALS.unpack(content[: _CREDENTIALS.size])[0]
    return data[0], -1


def _load_die_by() -> Callable[[int], None]:
    """What ends the process by a signal from a thread, where Python cannot restore the default; loaded beforehand."""
    try:
        import ctypes

        libc_signal = ctypes.CDLL(None).signal
        libc_signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
        libc_signal.restype = ctypes.c_void_p
    except (ImportError, OSError, AttributeError):
        return lambda signum: os.kill(os.getpid(), signal.SIGKILL)

    def die_by(signum: int) -> None:
        libc_signal(signum, None)
        os.kill(os.getpid(), signum)

    return die_by
