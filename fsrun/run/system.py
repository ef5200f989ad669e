"""Samples of the machine into the session's own log ``system/<job>/<n>.jsonl`` (protocol.md 6.13).

Does: one thread measures, another, which alone touches the run folder, writes; the log is fenced like that of scalars.
Samples wait in memory while the folder takes none (bounded, no spill: what still waits at the end is lost). Of the jobs
of a run on one host, one writes what is said of the whole host (``disk.host``). Leaves to others: measuring
(``probes``), the order of lines on the way (``outbox``), what a line says (``core.system``).
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from fsrun.core import layout
from fsrun.core.system import encode_sample
from fsrun.core.timing import CAPTURE_DELAY, STORE_RETRY
from fsrun.disk.clock import Clock
from fsrun.disk.fs import FileSystem
from fsrun.disk.host import Duty
from fsrun.disk.store import Store
from fsrun.run.log import SessionLog
from fsrun.run.outbox import Outbox
from fsrun.run.probes import Figures, Machine, load_nvml

_SHARE = 150
"""Seconds until the next sample, at least, for each second of CPU that one took: this keeps it under 1% of a core."""
_MOST_WAITING = 4096
"""Samples that wait in memory at most, where the folder takes none."""
_LAST_WAIT = 0.3
"""How long the end of a run waits for the sample that is being taken."""
_WORTH_A_SAMPLE = 0.5
"""Seconds since the last sample after which the end of a run is worth one more."""


class System:
    """The machine's samples of one job in this process, from ``start`` to ``close``.

    ``job``, ``session``: whose. ``interval``: seconds between two samples. ``is_protected``: whether nobody can have
    closed the session yet. ``machine``: makes what measures, on the sampling thread. Nothing here raises.
    """

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        run_dir: str,
        job: str,
        session: int,
        *,
        interval: float,
        is_protected: Callable[[], bool],
        warn: Callable[[str], None],
        machine: Callable[[], Machine] | None = None,
    ) -> None:
        self._fs, self._clock, self._run_dir, self._job = fs, clock, run_dir, job
        self._store_of = Store(fs, run_dir, job, session)
        self._interval = interval
        self._is_protected = is_protected
        self._warn = warn
        self._make = machine or (lambda: Machine(nvml=load_nvml()))
        self._machine: Machine | None = None
        self._outbox = Outbox(self._log(session), _no_spill, clock.monotonic, is_protected=is_protected)
        self._has_folder = False
        self._host = Duty(f"{run_dir} host")
        self._gpus: Duty | None = None
        self._disk: Figures = {}
        self._stop = threading.Event()
        self._sampled = 0.0
        self._lost = 0
        self._told = False
        self._storer = threading.Thread(target=self._store, name=f"fsrun-system-store-{job}", daemon=True)
        self._sampler = threading.Thread(target=self._measure, name=f"fsrun-system-{job}", daemon=True)

    def start(self) -> None:
        """Start both threads.

        After a crash: the log holds every sample but perhaps the last one.
        """
        with suppress(RuntimeError):  # the interpreter shuts down
            self._storer.start()
            self._sampler.start()

    # What the session asks.

    def acknowledged(self) -> dict[str, int]:
        """Bytes of the log that write and fsync acknowledged; nothing more counts in it until ``reopen``."""
        return self._outbox.seal()

    def reopen(self, session: int) -> None:
        """Go on in the log of session ``session``, which continues the one before."""
        self._outbox.reopen(self._log(session))

    def moved(self) -> None:
        """The run folder is said to be gone: see whether what was written last is still there."""
        self._outbox.verify(0.0)

    def fenced(self) -> None:
        """A newer session is open: nothing more is measured or written."""
        self._stop.set()
        self._outbox.stop()
        self._leave()

    def close(self, timeout: float) -> bool:
        """Take a last sample and write what waits, within ``timeout`` seconds; whether all of it is durable."""
        end = time.monotonic() + timeout
        self._stop.set()
        if self._sampler.ident is not None:
            self._sampler.join(min(_LAST_WAIT, timeout))
        outbox = self._outbox
        done = False
        while not done:
            outbox.kick()
            left = end - time.monotonic()
            done = outbox.wait(outbox.put_lines, min(0.1, max(0.0, left)))
            if left <= 0:
                break
        outbox.stop()
        if done and self._storer.ident is not None:
            self._storer.join(_LAST_WAIT)
        self._leave()
        lost = self._lost + outbox.put_lines - outbox.durable_lines
        if lost:
            self._warn(f"{self._run_dir}: {lost} samples of the machine could not be written and are lost")
        return not lost

    def _leave(self) -> None:
        self._host.leave()
        if self._gpus is not None:
            self._gpus.leave()

    # The thread that measures.

    def _measure(self) -> None:
        pause = min(CAPTURE_DELAY, self._interval)
        while not self._stop.wait(pause):
            began = time.thread_time()
            self._try(self._sample)
            pause = max(self._interval, _SHARE * (time.thread_time() - began))
        if self._machine is None or self._clock.monotonic() - self._sampled >= _WORTH_A_SAMPLE:
            self._try(self._sample)

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a thread of fsrun must survive everything
            if not self._told:
                self._told = True
                self._warn(f"samples of the machine: {type(error).__name__}: {error}")

    def _sample(self) -> None:
        first = self._machine is None
        if self._machine is None:
            self._machine = self._make()
            # Jobs that see different GPUs of one host each write theirs.
            seen = ",".join(str(gpu["uuid"]) for gpu in self._machine.gpus.describe())
            self._gpus = Duty(f"{self._run_dir} gpus {seen}")
        machine, now = self._machine, self._clock.monotonic()
        figures = machine.own(now)
        if self._host.take():
            # Space is asked for by the thread that may hang with the folder; where it hangs there is no new answer.
            disk, self._disk = self._disk, {}
            figures |= machine.host(now) | disk
        if self._gpus is not None and self._gpus.take():
            figures |= machine.gpus.sample()
        self._sampled = now
        if not first:
            self._tell(machine.absent)
        outbox = self._outbox
        if outbox.put_lines - outbox.durable_lines >= _MOST_WAITING:
            self._lost += 1
            return
        outbox.put(encode_sample(self._clock.now_ns() / 1e9, figures), 1)
        outbox.kick()

    def _tell(self, absent: dict[str, str]) -> None:
        if absent and not self._told:
            self._told = True
            self._warn(
                "not measured on this machine: " + "; ".join(f"{name} ({why})" for name, why in sorted(absent.items()))
            )

    # The thread that alone touches the run folder.

    def _store(self) -> None:
        outbox = self._outbox
        while outbox.await_work():
            try:
                self._make_folder()
                while outbox.store():
                    pass
                if self._machine is not None:
                    self._disk = self._machine.disk(self._run_dir)
            except Exception:  # noqa: BLE001 - the log of scalars says what is wrong with the folder
                outbox.pause(STORE_RETRY)
        outbox.close_log()

    def _make_folder(self) -> None:
        if not self._has_folder:
            self._store_of.ensure_folder(f"{layout.SYSTEM}/{self._job}")
            self._has_folder = True

    def _log(self, session: int) -> SessionLog:
        path = f"{layout.SYSTEM}/{self._job}/{layout.system_name(session)}"
        return SessionLog(self._fs, self._run_dir, path, self._is_protected)


def _no_spill() -> NoReturn:
    raise OSError(errno.ENOTSUP, "samples of the machine are not spilled")
