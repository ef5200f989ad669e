"""The two threads that bring lines from an encoder to the run folder, and what they say when that does not work.

Does: one thread has calls encoded every flush interval and when it is asked to, and spills what waits for too long; the
other, which alone touches the run folder, writes, and tries again after an error. Leaves to others: the lines
(``writer``), their order on the way (``outbox``).

protocol.md: 4.9 (spill), 7 (logs).
"""

from __future__ import annotations

import errno
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from fsrun.core.timing import FLUSH_INTERVAL, SILENCE_WARNING, SPILL_AFTER, STORE_RETRY
from fsrun.run.latch import Inbox
from fsrun.run.outbox import Durable, Outbox


@dataclass(frozen=True, slots=True)
class Pace:
    """Intervals of the two threads, in seconds."""

    flush: float = FLUSH_INTERVAL
    spill_after: float = SPILL_AFTER
    retry: float = STORE_RETRY


class _Ask:
    """What a thread of the user wants."""

    __slots__ = ("answer", "durable")

    def __init__(self, durable: bool) -> None:
        self.durable = durable
        self.answer = Durable()


class Pump:
    """Brings lines into the log of the run folder ``run_dir`` by two daemon threads, from ``start`` to ``end``.

    ``encode`` has everything encoded that was logged. ``warn`` is given one sentence at a time. A thread of the user
    calls ``ask`` and ``poke`` alone, which take no lock.
    """

    def __init__(
        self,
        outbox: Outbox,
        encode: Callable[[], None],
        warn: Callable[[str], None],
        *,
        run_dir: str,
        spill_dir: str,
        pace: Pace,
    ) -> None:
        self._outbox = outbox
        self._encode = encode
        self._user_warn = warn
        self._run_dir = run_dir
        self._spill_dir = spill_dir
        self._pace = pace
        self._wake: Inbox[_Ask | None] = Inbox()
        self._ended = False
        self._said: set[str] = set()
        self._threads: list[threading.Thread] = []

    def start(self, name: str) -> None:
        """Start the threads. While the interpreter shuts down there can be none; then ``flush`` writes by itself."""
        threads = [
            threading.Thread(target=self._tend, name=f"fsrun-log-{name}", daemon=True),
            threading.Thread(target=self._store, name=f"fsrun-store-{name}", daemon=True),
        ]
        try:
            for thread in threads:
                thread.start()
        except RuntimeError:
            return
        self._threads = threads

    @property
    def runs(self) -> bool:
        """Whether there are threads that do what ``ask`` and ``poke`` want."""
        return bool(self._threads) and not self._ended

    def ask(self, timeout: float, *, durable: bool = False) -> bool:
        """Have all calls so far encoded, ``durable``: written too, and wait for that; False where it did not happen."""
        asked = _Ask(durable)
        self._wake.put(asked)
        return self.runs and asked.answer.wait(timeout) and asked.answer.done

    def poke(self, *, write: bool = False) -> None:
        """Have all calls so far encoded soon, ``write``: and written; does not wait."""
        self._wake.put(_Ask(durable=True) if write else None)

    def flush(self, timeout: float, *, verify: bool = False) -> bool:
        """Wait until everything put into the outbox so far is durable; ``verify``: and is where it was written.

        After a crash: what a true return covers is in the log.
        """
        outbox = self._outbox
        if not self._threads:
            self._store_now()
            return outbox.wait(outbox.put_lines, 0.0)
        end = time.monotonic() + timeout
        outbox.kick()
        done = outbox.wait(outbox.put_lines, timeout)
        if verify and done:
            # A log that is not where it was is found out here, and its last lines wait again.
            outbox.verify(end - time.monotonic())
            done = outbox.wait(outbox.put_lines, end - time.monotonic())
        return done

    def end(self) -> None:
        """Stop both threads, and spill what is not durable; says where it is. Never raises, never waits."""
        outbox = self._outbox
        paths = outbox.spill()
        outbox.stop()
        self._ended = True
        self._wake.put(None)
        if paths:
            self.warn(
                f"{self._run_dir}: the last scalars could not be written; they are kept in {', '.join(paths)}: "
                "`fsrun check --fix` on this machine brings them into the run"
            )
        if outbox.spill_error is not None:
            self.warn(
                f"{self._run_dir}: the last scalars are lost: neither the run folder nor {self._spill_dir} takes them "
                f"({outbox.spill_error.strerror})"
            )

    def join(self, timeout: float) -> None:
        """Wait for the threads, after ``end``; one that hangs with the folder is left behind."""
        for thread in self._threads:
            thread.join(timeout)

    def warn(self, message: str) -> None:
        """Say something; never raises."""
        try:
            self._user_warn(message)
        except Exception:  # noqa: BLE001 - a warning must never be the error
            return

    def warn_once(self, kind: str, message: str) -> None:
        """Say something of a kind that was not said before."""
        if kind not in self._said:
            self._said.add(kind)
            self.warn(message)

    def _tend(self) -> None:
        due = time.monotonic() + self._pace.flush
        while not self._ended:
            asked = self._asked(due - time.monotonic())
            try:
                self._encode()
            except Exception as error:  # noqa: BLE001 - this thread must survive everything
                self.warn_once("encode", f"logging: {type(error).__name__}: {error}")
            for ask in asked:
                self._answer(ask)
            try:
                if time.monotonic() >= due:
                    due = time.monotonic() + self._pace.flush
                    self._look_around()
            except Exception as error:  # noqa: BLE001 - this thread must survive everything
                self.warn_once("tend", f"logging: {type(error).__name__}: {error}")
        for ask in self._asked(0.0):
            ask.answer.set()

    def _asked(self, wait: float) -> list[_Ask]:
        """What was asked for, after ``wait`` seconds at most."""
        asked = []
        try:
            asked.append(self._wake.take(wait))
            while True:
                asked.append(self._wake.take(0.0))
        except queue.Empty:
            return [ask for ask in asked if ask is not None]

    def _answer(self, ask: _Ask) -> None:
        if ask.durable:
            self._outbox.promise(ask.answer)
        else:
            ask.answer.done = True
            ask.answer.set()

    def _look_around(self) -> None:
        outbox = self._outbox
        if outbox.needs_store():
            outbox.kick()
        silent = outbox.silent_for()
        if silent > self._pace.spill_after:
            paths = outbox.spill()
            if silent > SILENCE_WARNING and paths:
                self.warn_once(
                    "silent",
                    f"{self._run_dir} has not answered for {silent:.0f} s: scalars go to {paths[0]} and are written "
                    "back later, by this process or by `fsrun check --fix`",
                )
        if outbox.dropped_lines:
            self.warn_once(
                "dropped",
                f"{self._run_dir}: lines were lost: nothing takes them, and memory is full ({outbox.spill_error})",
            )

    def _store(self) -> None:
        while self._outbox.await_work():
            if not self._store_now():
                self._outbox.pause(self._pace.retry)
        self._outbox.close_log()

    def _store_now(self) -> bool:
        """Write all that waits; False, and a warning once, where that failed."""
        try:
            while self._outbox.store():
                pass
            return True
        except OSError as error:
            if error.errno != errno.EAGAIN:
                self.warn_once(
                    f"errno {error.errno}",
                    f"{self._run_dir}: scalars cannot be written ({error.strerror or error}): they are kept, in "
                    f"{self._spill_dir} if need be, and written later",
                )
        except Exception as error:  # noqa: BLE001 - this thread must survive everything
            self.warn_once("store", f"logging: {type(error).__name__}: {error}")
        return False
