"""Encoded lines on their way to a log: memory, the write in flight, the local spill, always in the order of the calls.

Does: holds lines until the log has them durably; spills them when the log takes none; writes spills back, in order,
when it works again; says what is durable. Leaves to others: encoding (``encoder``), threads (``writer``), the files
(``log``, ``spill``).

Three threads meet here: one that encodes and looks around (``put``, ``silent_for``, ``spill``), one that ends it, and
the one that alone touches the shared folder (``store``) and may hang there. No lock is held while it does. A thread of
the user waits by a ``Durable`` and never comes here itself: a signal might find it holding the lock (``latch``).

protocol.md: 4.7 (fence), 4.9 (spill).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from fsrun.core.timing import SPILL_RETRY
from fsrun.run.latch import Latch, shared_lock
from fsrun.run.log import LogGone, SessionLog
from fsrun.run.spill import SpillFile

WRITE_SIZE = 8 << 20
"""Bytes of one write at most."""
KICK_SIZE = 1 << 20
"""Bytes in memory above which they are written without waiting for the next flush."""
MEMORY = 16 << 20
"""Bytes in memory above which lines are spilled."""
MEMORY_AT_WORST = 48 << 20
"""Bytes in memory above which lines are dropped, where spilling fails too."""
SPILL_SIZE = 64 << 20
"""Bytes after which another spill file is begun: a file is imported in one piece."""
CHECK_SIZE = 4 << 20
"""Bytes after which, at the latest, it is checked that the log is still where it was."""


@dataclass(slots=True)
class _Flight:
    """What is being written. It is kept, and written again, until a log acknowledges it."""

    data: bytes
    spill: SpillFile | None = None
    """Where these bytes stand too."""
    written: bool = False
    """The log has them, but the session was not protected when that was known."""


class Durable(Latch):
    """Set when what was logged before it was asked for is durable, or will not be; ``done`` says which."""

    __slots__ = ("done", "dropped", "target")

    def __init__(self) -> None:
        super().__init__()
        self.done = False
        self.target = self.dropped = 0


class Outbox:
    """Lines of one job on their way to ``log``.

    ``new_spill`` makes the next spill file, or raises ``OSError``. ``monotonic`` gives seconds. ``is_protected``:
    whether nobody can have closed the session yet; only then does what is written count for sure, since a fence
    may be stated at any other time. ``check_after``: seconds after which it is checked that what was written is still
    where it was.
    """

    def __init__(
        self,
        log: SessionLog,
        new_spill: Callable[[], SpillFile],
        monotonic: Callable[[], float],
        *,
        is_protected: Callable[[], bool] = lambda: True,
        check_after: float = 5.0,
        memory: int = MEMORY,
    ) -> None:
        self._log = log
        self._new_spill = new_spill
        self._monotonic = monotonic
        self._is_protected = is_protected
        self._check_after = check_after
        self._memory_limit = memory
        # Held by its own name: a handler that raises amid the entering of a Condition would leave it locked (latch).
        self._lock = shared_lock()
        self._change = threading.Condition(self._lock)
        self._lines: deque[bytes] = deque()
        self._memory = 0
        self._flights: deque[_Flight] = deque()
        self._spills: deque[SpillFile] = deque()
        self._filling: SpillFile | None = None
        self._recent: list[bytes] = []
        self._retired: list[SessionLog] = []
        self._promised: list[Durable] = []
        self._checked = self._progress = monotonic()
        self._spill_again = 0.0
        self._due = self._check_now = self._sealed = self._stopped = False
        self.put_lines = 0
        self.durable_lines = 0
        self.dropped_lines = 0
        self.spill_error: OSError | None = None
        """Why lines could not be spilled, while that is so."""

    # Who logs.

    def put(self, data: bytes, count: int) -> None:
        """Take ``count`` encoded lines. Never raises, never waits for the shared folder."""
        with self._lock:
            if self._memory >= self._memory_limit and self._monotonic() >= self._spill_again:
                self.spill(sync=False)
            self.put_lines += count
            if self._memory >= self._memory_limit + MEMORY_AT_WORST - MEMORY:
                self.dropped_lines += count
                self._keep_promises()
                return
            if not self._waiting():
                self._progress = self._monotonic()
            self._lines.append(data)
            self._memory += len(data)
            if self._memory >= KICK_SIZE:
                self.kick()

    def kick(self) -> None:
        """Have what is there written now."""
        with self._lock:
            self._due = True
            self._change.notify_all()

    def wait(self, target: int, timeout: float) -> bool:
        """Wait until the first ``target`` lines that were put are durable in the log; False if that failed."""
        with self._lock:
            dropped = self.dropped_lines
            self._change.wait_for(lambda: self._settled() >= target or self._stopped, timeout)
            return self._settled() >= target and self.dropped_lines == dropped

    def verify(self, timeout: float) -> None:
        """Have it checked that the log is still where it was, and wait for the answer; what is gone waits again."""
        with self._lock:
            self._check_now = True
            self.kick()
            self._change.wait_for(lambda: not self._recent or self._sealed or self._stopped, timeout)

    def promise(self, durable: Durable) -> None:
        """Have what was put so far written now, and ``durable`` set once that is done or has failed."""
        with self._lock:
            durable.target, durable.dropped = self.put_lines, self.dropped_lines
            self._promised.append(durable)
            self._keep_promises()
            self.kick()

    def _keep_promises(self) -> None:
        kept = [durable for durable in self._promised if self._stopped or self._settled() >= durable.target]
        for durable in kept:
            self._promised.remove(durable)
            durable.done = self._settled() >= durable.target and self.dropped_lines == durable.dropped
            durable.set()

    def _settled(self) -> int:
        return self.durable_lines + self.dropped_lines

    # Who looks around.

    def silent_for(self) -> float:
        """Seconds since a log last acknowledged lines, or since there are any; 0 where none wait."""
        with self._lock:
            return self._monotonic() - self._progress if self._waiting() else 0.0

    def needs_store(self) -> bool:
        """Whether ``store`` has something to do."""
        with self._lock:
            return self._waiting() or self._check_is_due()

    def _waiting(self) -> bool:
        return bool(self._lines or self._flights or self._spills)

    def spill(self, *, sync: bool = True) -> list[str]:
        """Bring everything that no log acknowledged into local files; returns their paths. Never raises.

        After a crash: what is in the files stands there for ``import_spill``.
        """
        with self._lock:
            try:
                self._spill_flights()
                while self._lines:
                    self._append_spill(self._lines[0])
                    self._memory -= len(self._lines.popleft())
                for spill in self._spills if sync else ():
                    spill.sync()
                self.spill_error = None
            except OSError as error:
                self.spill_error = error
                self._spill_again = self._monotonic() + SPILL_RETRY
            return [spill.path for spill in self._spills]

    def _spill_flights(self) -> None:
        """Flights that stand in no file are older than all files, so they go into one before them."""
        bare = [flight for flight in self._flights if flight.spill is None]
        if bare:
            spill = self._filled_spill([flight.data for flight in bare])
            self._filling = self._filling if self._spills else spill
            self._spills.appendleft(spill)
            for flight in bare:
                flight.spill = spill

    def _append_spill(self, data: bytes) -> None:
        if self._spills and self._spills[-1] is self._filling and self._filling.size < SPILL_SIZE:
            self._filling.append(data)
        else:
            self._filling = self._filled_spill([data])
            self._spills.append(self._filling)

    def _filled_spill(self, pieces: list[bytes]) -> SpillFile:
        spill = self._new_spill()
        try:
            for data in pieces:
                spill.append(data)
        except OSError:
            spill.remove()
            raise
        return spill

    # Sessions.

    def seal(self) -> dict[str, int]:
        """Bytes of the log that are acknowledged; nothing more counts in it from here on, until ``reopen``."""
        with self._lock:
            self._sealed = True
            return {self._log.path: self._log.acknowledged} if self._log.acknowledged else {}

    def reopen(self, log: SessionLog) -> None:
        """Go on in another log; what the sealed one did not acknowledge is written there again."""
        with self._lock:
            self._retired.append(self._log)
            self._log = log
            for flight in self._flights:
                flight.written = False
            # A spill of the closed session may be imported by anyone from now on, so nothing is added to it.
            self._filling = None
            self._recent.clear()
            self._sealed = False
            self.kick()

    def stop(self) -> None:
        """Write nothing more. What was spilled stays in its files."""
        with self._lock:
            self._stopped = True
            self._keep_promises()
            self._change.notify_all()
            for spill in self._spills:
                spill.close()

    # The thread that alone touches the shared folder.

    def await_work(self) -> bool:
        """Wait until something is to be written; False once the outbox was stopped."""
        with self._lock:
            self._change.wait_for(lambda: self._stopped or self._due)
            self._due = False
            return not self._stopped

    def pause(self, seconds: float) -> None:
        """Wait after an error; ends early when the outbox is stopped."""
        with self._lock:
            self._due = True
            self._change.wait_for(lambda: self._stopped, seconds)

    def store(self) -> bool:
        """One write of the oldest lines; False where nothing is left, or nothing may be written now.

        Raises ``OSError``; then the lines are kept.

        After a crash: what was acknowledged is in the log; the rest may be, in part.
        """
        with self._lock:
            retired, self._retired = self._retired, []
            log = self._log
            due = self._check_is_due()
            if due:
                self._checked, self._check_now = self._monotonic(), False
            flight = None if self._sealed or self._stopped else self._next_flight()
        for old in retired:
            old.close()
        try:
            if due:
                log.check()
                self._forget_recent(log)
            if flight is None or not self._is_protected():
                return False
            if not flight.written:
                log.append(flight.data)
                flight.written = log is self._log
            if not self._is_protected():
                return False
            self._acknowledge(log, flight)
            return True
        except LogGone:
            self._doubt_recent(log)
            raise

    def close_log(self) -> None:
        """Close the file of the log."""
        for log in (*self._retired, self._log):
            log.close()

    def _check_is_due(self) -> bool:
        if not self._recent or self._sealed:
            return False
        elapsed = self._monotonic() - self._checked
        return self._check_now or elapsed >= self._check_after or sum(map(len, self._recent)) >= CHECK_SIZE

    def _next_flight(self) -> _Flight | None:
        if self._flights:
            return self._flights[0]
        if self._spills:
            flight = _Flight(self._spills[0].read(WRITE_SIZE), self._spills[0])
        elif self._lines:
            taken: list[bytes] = []
            size = 0
            while self._lines and (not taken or size + len(self._lines[0]) <= WRITE_SIZE):
                taken.append(self._lines.popleft())
                size += len(taken[-1])
            self._memory -= size
            flight = _Flight(b"".join(taken))
        else:
            return None
        self._flights.append(flight)
        return flight

    def _acknowledge(self, log: SessionLog, flight: _Flight) -> None:
        with self._lock:
            # What arrived after the sizes were stated for a fence is void there: it stays in flight, for the next log.
            if self._sealed or self._stopped or log is not self._log:
                return
            self._flights.popleft()
            spill = flight.spill
            if spill is not None:
                spill.done += len(flight.data)
                if spill.done == spill.size:
                    self._spills.remove(spill)
                    spill.remove()
            self._recent.append(flight.data)
            self.durable_lines += flight.data.count(b"\n")
            self._progress = self._monotonic()
            self._keep_promises()
            self._change.notify_all()

    def _forget_recent(self, log: SessionLog) -> None:
        with self._lock:
            if log is self._log:
                self._recent.clear()
                self._change.notify_all()

    def _doubt_recent(self, log: SessionLog) -> None:
        """The log is not where it was: what went there since the last look is written again."""
        with self._lock:
            if log is self._log and self._recent:
                data = b"".join(self._recent)
                self._recent.clear()
                self._flights.appendleft(_Flight(data))
                self.durable_lines -= data.count(b"\n")
                self._change.notify_all()
