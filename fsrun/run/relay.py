"""The process between a job's output and where it goes: passes every byte on at once, and gives it to the log.

Does: one thread a channel reads and writes on; the main thread obeys the job's process (end of the log, next log,
stop) and tells it what happened. It is no child of the job and ends when nobody can write to the channels any more, or
when the original is gone. Leaves to others: the log (``consolelog``), the job's side (``console``). Started for each
job that records its console, so it loads nothing beyond the standard library, and the most of that late.

Words on the control socket, each closed by a NUL byte. To this process: ``log <path>``, ``end``, ``stop``,
``drop <i>``. From it: ``broken <i>``, ``note <text>``, ``passed``, ``closed``, ``over``.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsrun.run.descriptors import Held, copy_size, waiting

if TYPE_CHECKING:
    from fsrun.disk.fs import LogFile

CHUNK = 1 << 18
SURVIVED = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGQUIT", "SIGHUP", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM")
    if hasattr(signal, name)
)
"""Signals that are meant for the job."""
BROKEN_LOOK = 200.0
"""Milliseconds between two looks at a channel whose original is gone."""
DROPPED_WAIT = 0.3
"""Seconds within which a write to a channel ends that was under way when the descriptor was taken back."""
SWITCH_INTERVAL = 0.0005
"""Seconds that the thread of the log may keep the others waiting."""
LAST_LOG_WAIT = 10.0
"""Seconds that the log is given after the end of all output."""
QUIET = 0.03
"""Seconds without output after which nothing is on its way any more that was written before."""
TERMINAL_HOLDS = 1 << 16
"""More than a terminal holds between who writes and who reads: what was written that long ago was read."""


class Wire:
    """Words through a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._held = Held(connection.fileno())
        self._lock = threading.Lock()
        self._rest = b""

    def fileno(self) -> int:
        """The descriptor, to wait for."""
        return self._socket.fileno()

    def say(self, *words: str) -> None:
        """Send words; nothing happens where nobody listens."""
        if not self._held.is_ours:
            return
        data = b"".join(os.fsencode(word.replace("\0", "")) + b"\0" for word in words)
        with self._lock:
            try:
                self._socket.sendall(data, getattr(socket, "MSG_NOSIGNAL", 0))
            except OSError:
                return

    def hear(self) -> list[str] | None:
        """Receive words; None where the other side is gone."""
        try:
            data = self._socket.recv(1 << 16) if self._held.is_ours else b""
        except OSError:
            data = b""
        if not data:
            return None
        *words, self._rest = (self._rest + data).split(b"\0")
        return [os.fsdecode(word) for word in words]

    def close(self) -> None:
        """Close the socket."""
        if not self._held.is_ours:
            self._socket.detach()
        self._socket.close()


class Relay:
    """One channel: what is read from ``reader`` goes to ``original`` (-1: nowhere) and is offered to ``log``."""

    def __init__(self, index: int, reader: int, original: int, *, terminal: bool, hub: Hub) -> None:
        self.index = index
        self.reader = reader
        self.original = original
        self.terminal = terminal
        self.broken = False
        self._hub = hub
        self._view = memoryview(bytearray(CHUNK))
        self._lock = threading.Lock()
        self._poller = select.poll()
        self._poller.register(reader, select.POLLIN)
        self._dropped = self._over = False
        self._read = self._passed = 0

    def run(self) -> None:
        """Relay until the end."""
        try:
            while not self._dropped and self._pass():
                pass
            end = time.monotonic() + DROPPED_WAIT
            while self._dropped and time.monotonic() < end and self._poller.poll(QUIET * 1000) and self._pass_now():
                pass
        except Exception as error:  # noqa: BLE001 - the job learns of it and goes on without
            self._hub.wire.say(f"note {type(error).__name__}: {error}")
        self._close()
        self._hub.ended()

    def _pass(self) -> bool:
        """Wait for output and pass it on; False at the end."""
        # A broken channel is looked at again in a while: it may be dropped while its writers are silent.
        if not self._poller.poll(BROKEN_LOOK if self.broken else None):
            return True
        return self._pass_now()

    def _pass_now(self) -> bool:
        with self._lock:
            try:
                size = os.readv(self.reader, [self._view])
            except OSError:  # EIO: a terminal that nobody holds open
                return False
            if not size:
                return False
            self._hub.log_put(self.index, self._view[:size])
            self._read += size
        if not self.broken and self.original >= 0:
            self._write(self._view[:size])
        with self._lock:
            self._passed += size
        return True

    def _write(self, data: memoryview) -> None:
        while data:
            try:
                data = data[os.write(self.original, data) :]
            except BlockingIOError:
                poller = select.poll()
                poller.register(self.original, select.POLLOUT)
                poller.poll()
            except OSError:
                # The program is to see this error itself: the job leads its output there again.
                self.broken = True
                self._hub.broken(self)
                return

    def _close(self) -> None:
        """Close both ends at once: whoever waits for the end of the original must not wait for the log."""
        with self._lock:
            self._over = True
            for descriptor in (self.original, self.reader):
                if descriptor >= 0:
                    os.close(descriptor)
            self.original = self.reader = -1

    def drop(self) -> None:
        """Nobody reads the original any more: writers shall learn it too."""
        self._dropped = self.broken = True

    def mark(self) -> int:
        """How many bytes will have passed when all that is in the channel now has; of a terminal: at the latest."""
        with self._lock:
            return self._read + (0 if self._over else TERMINAL_HOLDS if self.terminal else waiting(self.reader))

    def has_passed(self, mark: int) -> bool:
        """Whether so many bytes have passed, or all of a terminal's."""
        with self._lock:
            return self._over or self._passed >= mark or (self.terminal and self._is_empty())

    def _is_empty(self) -> bool:
        """Whether all that was written to a terminal until now has passed.

        It hands on in the background what was written to it, so that its size says nothing; to poll it waits for that.
        """
        poller = select.poll()
        poller.register(self.reader, select.POLLIN)
        return self._read == self._passed and not poller.poll(0)

    def copy_size(self) -> None:
        """Give the channel's terminal the window size of the original."""
        copy_size(self.original, self.reader)


class Hub:
    """The channels, the log and the wire of one process."""

    def __init__(self, wire: Wire, path: str, channels: Sequence[tuple[int, int, bool]]) -> None:
        from fsrun.run.consolelog import ConsoleLog

        self.wire = wire
        self.alone = False
        self._log = ConsoleLog(_append, path, len(channels), lambda text: wire.say(f"note {text}"))
        self._relays = [
            Relay(index, reader, original, terminal=terminal, hub=self)
            for index, (reader, original, terminal) in enumerate(channels)
        ]
        self._left = len(channels)
        self._all_over, self._all_over_writer = os.pipe()

    def log_put(self, index: int, data: memoryview) -> None:
        """Offer output to the log."""
        self._log.put(index, bytes(data))

    def broken(self, relay: Relay) -> None:
        """The original of a channel takes nothing more."""
        if self.alone:
            relay.drop()
        else:
            self.wire.say(f"broken {relay.index}")

    def ended(self) -> None:
        """A channel is at its end."""
        os.write(self._all_over_writer, b"x")

    def run(self) -> None:
        """Relay until nobody writes any more, then give the log its time."""
        signal.signal(signal.SIGWINCH, self._resized)
        self._log.start()
        for relay in self._relays:
            threading.Thread(target=relay.run, name=f"relay-{relay.index}", daemon=True).start()
        poller = select.poll()
        poller.register(self.wire.fileno(), select.POLLIN)
        poller.register(self._all_over, select.POLLIN)
        while self._left:
            for descriptor, _ in poller.poll():
                if descriptor == self._all_over:
                    self._left -= len(os.read(self._all_over, 16))
                elif not self._hear():
                    poller.unregister(descriptor)
        self._log.end()
        self._log.wait(LAST_LOG_WAIT)
        self.wire.say("passed", "closed", "over")

    def _hear(self) -> bool:
        """Obey the job; False where it is gone."""
        words = self.wire.hear()
        if words is None:
            self.alone = True
            for relay in self._relays:
                if relay.broken:
                    relay.drop()
            return False
        for word in words:
            verb, _, rest = word.partition(" ")
            if verb == "log":
                self._log.move(rest)
            elif verb == "stop":
                self._log.stop()
            elif verb == "drop":
                self._relays[int(rest)].drop()
            elif verb == "end":
                threading.Thread(target=self._end, name="end", daemon=True).start()
        return True

    def _end(self) -> None:
        """The job's run has ended: what it printed until now goes into the log, which is then closed."""
        for relay in self._relays:
            self._await_passed(relay)
        self.wire.say("passed")
        self._log.end()
        if self._log.wait(LAST_LOG_WAIT):
            self.wire.say("closed")

    def _await_passed(self, relay: Relay) -> None:
        """Wait until what was written to a channel has gone where it goes; for ever, where that takes nothing."""
        mark, pause = relay.mark(), 0.001
        while not relay.has_passed(mark):
            time.sleep(pause)
            pause = min(0.05, pause * 1.1)

    def _resized(self, signum: int, frame: object) -> None:
        for relay in self._relays:
            if relay.terminal:
                relay.copy_size()


def _append(path: str) -> LogFile:
    from fsrun.disk.fs import LocalLog

    return LocalLog(path, waits=True)


def main(arguments: Sequence[str]) -> None:
    """``CONTROL PATH READER,ORIGINAL,TERMINAL ...``: descriptors as numbers, ``TERMINAL`` is 1 or 0."""
    for signum in SURVIVED:
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SURVIVED)
    sys.setswitchinterval(SWITCH_INTERVAL)
    control, path, *specifications = arguments
    channels = [tuple(int(part) for part in text.split(",")) for text in specifications]
    wire = Wire(socket.socket(fileno=int(control)))
    try:
        Hub(wire, path, [(reader, original, bool(terminal)) for reader, original, terminal in channels]).run()
    finally:
        os._exit(0)
