"""The console of a job: what it and the programs it starts print is recorded, and goes where it went without fsrun.

Does: leads descriptors 1 and 2 through channels, starts the process that reads them (``relay``), and takes them back:
at the end of the run, where the original breaks (the program sees that error itself), where that process is gone.
Leaves to others: the bytes (``relay``, ``consolelog``), the descriptors (``descriptors``), notebooks (``notebook``).

One thread waits here from the start, since none can be started while the interpreter shuts down. The reading ends stay
open in this process: a killed relay costs no output and no broken pipe.

protocol.md: 2 (tree), 6.15 (console).
"""

from __future__ import annotations

import io
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import fsrun
from fsrun.core import layout
from fsrun.disk.store import Store
from fsrun.run.descriptors import Channel, Held, open_channels, waiting
from fsrun.run.notebook import Forwarding, is_notebook
from fsrun.run.relay import CHUNK, SURVIVED, Wire

FLUSH_WAIT = 1.5
"""Seconds that the thread waits for channels to empty, at the end or when the relay is gone."""
_SHELL = ["/bin/sh", "-c", '"$@" &', "fsrun-console"]
"""Starts what follows and ends: the relay is nobody's child that the program could wait for."""
_CODE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from fsrun.run.relay import main; main(sys.argv[1:])"
_KEPT = frozenset(("PYTHONHOME", "PYTHONPLATLIBDIR", "PYTHONUTF8", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"))

_recorded_by: Console | None = None
"""The one run of this process that records the console."""


class Console:
    """The recording of a session's console, from ``start`` to ``finish``. ``warn`` is given one sentence at a time."""

    def __init__(self, store: Store, warn: Callable[[str], None]) -> None:
        self._store = store
        self._warn = warn
        self._channels: list[Channel] = []
        self._forwarding: list[Forwarding] = []
        self._wire: Wire | None = None
        self._wake: tuple[Held, Held] | None = None
        self._closed = threading.Event()
        self._over = False

    def start(self) -> None:
        """Record from now on, if no other run of this process does. Never raises but for Ctrl-C.

        After a crash of this process the log is complete up to its last byte; of the machine, up to a second before.
        """
        global _recorded_by
        if _recorded_by is not None:
            path = _recorded_by._store.root
            self._warn(f"{self._store.root}: its console is not recorded: {path} records that of this process")
            return
        try:
            self._start()
        except BaseException as error:
            self._give_up()
            if not isinstance(error, Exception):
                raise
            self._warn(f"{self._store.root}: the console is not recorded: {error}")
            return
        _recorded_by = self
        self._link()

    def _start(self) -> None:
        _flush()
        self._channels = open_channels()
        streams = [name for name in ("stdout", "stderr") if is_notebook(getattr(sys, name, None))]
        if streams:
            self._channels.append(Channel(()))
        if not self._channels:
            raise OSError("standard output and error are closed")
        ours, theirs = socket.socketpair()
        try:
            self._wire = Wire(socket.socket(fileno=Held.take(ours.detach()).number))
            passed = Held.take(theirs.detach())
            _spawn(passed.number, self._log_path(self._store.session), self._channels)
            passed.close()
        finally:
            theirs.close()
        reading, writing = os.pipe()
        self._wake = Held.take(reading), Held.take(writing)
        threading.Thread(target=self._watch, name=f"fsrun-console-{self._store.job}", daemon=True).start()
        for channel in self._channels:
            channel.switch()
        writer = self._channels[-1].writer
        if writer is not None:
            os.set_blocking(writer.number, False)
            self._forwarding = [Forwarding(name, writer) for name in streams]

    def _log_path(self, session: int) -> str:
        return self._store.path(layout.FILES, layout.console_name(self._store.job, session))

    def _link(self) -> None:
        """Lead the name without a number here; a file system without symbolic links has none."""
        store = self._store
        with suppress(OSError):
            store.link_to(layout.FILES, layout.console_name(store.job), layout.console_name(store.job, store.session))

    # What happens to the session.

    def reopen(self, session: int) -> None:
        """The run goes on in another session: so does its log."""
        if self._wire is not None:
            self._store = Store(self._store.fs, self._store.root, self._store.job, session)
            self._wire.say(f"log {self._log_path(session)}")
            self._link()

    def fenced(self) -> None:
        """Another process has this job: record nothing more. What is printed still goes its way."""
        if self._wire is not None:
            self._wire.say("stop")

    def finish(self, timeout: float) -> bool:
        """Take the descriptors back and close the log, ``timeout`` seconds at most; False where that took longer.

        The descriptors are taken back once all that was printed has gone where it goes, so that its order stays.
        Programs that were started keep a working output. Never raises.

        After a crash: as in ``start``.
        """
        global _recorded_by
        if self._wire is None or self._wake is None:
            return True
        with suppress(OSError):
            if self._wake[1].is_ours:
                os.write(self._wake[1].number, b"x")
        done = self._closed.wait(timeout)
        if _recorded_by is self:
            _recorded_by = None
        return done

    def forget(self) -> None:
        """This is a forked child: what it prints is its parent's console; nothing else is shared."""
        global _recorded_by
        if _recorded_by is self:
            _recorded_by = None
        for channel in self._channels:
            channel.close()
        self._close_wire()

    # The thread.

    def _watch(self) -> None:
        assert self._wire is not None
        assert self._wake is not None
        poller = select.poll()
        poller.register(self._wire.fileno(), select.POLLIN)
        poller.register(self._wake[0].number, select.POLLIN)
        while not self._closed.is_set():
            for descriptor, event in poller.poll():
                if descriptor == self._wake[0].number:
                    poller.unregister(descriptor)
                    self._flush()
                    self._wire.say("end")
                elif event & select.POLLNVAL or not self._hear():
                    self._lost()
                    self._closed.set()
        self._close_wire()
        self._pass_on_the_rest()
        for channel in self._channels:
            channel.close()

    def _flush(self) -> None:
        """Have what the program's streams hold back recorded, where that cannot block.

        A thread that is blocked in a flush holds the stream's lock, and the end of the interpreter would abort on that.
        """
        deadline = time.monotonic() + FLUSH_WAIT
        while not all(channel.has_room() for channel in self._channels):
            if time.monotonic() > deadline:
                return
            time.sleep(0.01)
        _flush()
        _flush_c()

    def _hear(self) -> bool:
        """Act on what the relay says; False where it is gone."""
        assert self._wire is not None
        words = self._wire.hear()
        for word in words or ():
            verb, _, rest = word.partition(" ")
            if verb == "broken":
                channel = self._channels[int(rest)]
                channel.restore()
                channel.reader.close()
                self._wire.say(f"drop {rest}")
            elif verb == "note":
                self._warn(f"{self._store.root}: the console cannot be recorded as a whole: {rest}")
            elif verb == "passed":
                self._restore()
            elif verb == "closed":
                for channel in self._channels:
                    channel.reader.close()
                self._closed.set()
            elif verb == "over":
                self._over = True
        return words is not None

    def _lost(self) -> None:
        """The relay is gone: pass on what it left, then lead the output past us; the order stays but for a moment."""
        deadline = time.monotonic() + FLUSH_WAIT
        for channel in self._channels:
            while channel.original is not None and waiting(channel.reader.number) and time.monotonic() < deadline:
                if not channel.reader.is_ours or not _pass_on(channel):
                    break
        self._restore()
        if not self._over:
            self._warn(f"{self._store.root}: the console is not recorded any more: the process that does it has ended")

    def _restore(self) -> None:
        """Put everything back that is still ours; once or more often."""
        for forwarding in self._forwarding:
            forwarding.restore()
        for channel in self._channels:
            channel.restore()

    def _pass_on_the_rest(self) -> None:
        """Do the relay's work where it is gone: programs that were started may still write to the channels."""
        left = {c.reader.number: c for c in self._channels if c.reader.is_ours and c.original is not None}
        poller = select.poll()
        for number in left:
            poller.register(number, select.POLLIN)
        while left:
            for number, _ in poller.poll():
                channel = left[number]
                if not _pass_on(channel):
                    poller.unregister(number)
                    channel.reader.close()
                    del left[number]

    def _give_up(self) -> None:
        """Undo what a start that failed has done."""
        self._restore()
        for channel in self._channels:
            channel.close()
        self._close_wire()
        self._channels = []

    def _close_wire(self) -> None:
        wire, wake = self._wire, self._wake
        self._wire = self._wake = None
        if wire is not None:
            wire.close()
        for held in wake or ():
            held.close()


def _pass_on(channel: Channel) -> bool:
    """Pass on what a channel holds; False at its end, or where the original takes nothing."""
    assert channel.original is not None
    try:
        data = memoryview(os.read(channel.reader.number, CHUNK))
        if not data:
            return False
        while data:
            data = data[os.write(channel.original.number, data) :]
    except OSError:
        return False
    return True


def _spawn(control: int, path: str, channels: list[Channel]) -> None:
    """Start the relay. Raises ``OSError``."""
    program = os.path.basename(sys.executable or "")
    if not program.startswith(("python", "pypy")):
        # An embedding program would start once more as itself.
        raise OSError(f"{program or 'this process'} is no Python interpreter that could be started")
    home = os.path.dirname(os.path.dirname(os.path.abspath(fsrun.__file__)))
    passed, specifications = [control], []
    for channel in channels:
        original = -1 if channel.original is None else channel.original.number
        specifications.append(f"{channel.reader.number},{original},{int(channel.is_terminal)}")
        passed += [channel.reader.number, *([original] if original >= 0 else [])]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SURVIVED)
    try:
        # Blocked signals stay so in the new process until it ignores them.
        subprocess.Popen(
            [*_SHELL, sys.executable, "-P", "-S", "-c", _CODE, home, str(control), path, *specifications],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=passed,
            cwd="/",
            env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON") or k in _KEPT},
        ).wait()
    except (ValueError, RuntimeError) as error:
        raise OSError(str(error)) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _flush() -> None:
    """Write out what Python's own streams hold back. What stands in their place is the program's own affair."""
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        try:
            stream = getattr(sys, name, None)
            if isinstance(stream, io.TextIOWrapper) and stream.fileno() in (1, 2):
                stream.flush()
        except Exception:  # noqa: BLE001 - closed, broken or used at this moment
            continue


def _flush_c() -> None:
    """Write out what C libraries printed."""
    try:
        import ctypes

        libc = ctypes.CDLL(None)
        libc.fflush(ctypes.c_void_p.in_dll(libc, "stdout"))
    except Exception:  # noqa: BLE001 - a C library without that name has nothing to flush for us
        return
