"""Logging scalars (protocol.md 6, "Scalar line"): an append in memory now, a durable line within a second.

Does: takes the values of a call in well under a microsecond; has them encoded on a thread of its own; starts and ends
with the session. A thread of the user appends to a list and waits, and takes no lock (``latch``). Leaves to others:
what a value is (``core.values``), batches of calls (``encoder``), the way to the disk and what happens when there is
none (``outbox``).
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Mapping

from fsrun.core import layout
from fsrun.core.errors import UsageError
from fsrun.core.timing import (
    FINISH_WAIT,
    FLUSH_INTERVAL,
    SIDE_DURABLE_RATE,
    SIDE_DURABLE_WAIT,
    SPILL_AFTER,
    STORE_RETRY,
)
from fsrun.core.values import as_number, as_step, numeric_leaves, printable
from fsrun.disk.clock import Clock
from fsrun.disk.fs import FileSystem, LocalFileSystem
from fsrun.run.encoder import Call, Encoder
from fsrun.run.latch import Latch, is_mine, shared_lock
from fsrun.run.log import SessionLog
from fsrun.run.outbox import Outbox
from fsrun.run.pump import Pace, Pump
from fsrun.run.spill import SpillFile, SpillNote, default_folder

_RUNNING = ("open", "closing")
_BATCH = 512
"""Calls that are encoded at once: the GIL is held for about 0.3 ms."""
_PENDING_BYTES = 14 << 20
"""Memory that calls which are not encoded yet may take."""
_ROOM_WAIT, _ROOM_WAIT_AGAIN = 10.0, 2.0
"""Seconds that a caller waits where they take it; a call that still finds no room then is dropped.

A local disk that is only busy takes seconds for a spill; one that hung for the first wait is waited for less.
"""
_ENCODED_WAIT = 2.0
"""Seconds that whoever asks for the last step waits for the calls before to be encoded."""
_CLOCK_STEP = 0.05
"""Seconds by which the wall clock has to have jumped forwards for the times of lines to follow."""


class ScalarWriter:
    """The log of one job's scalars in this process.

    ``add`` may be called from any thread, and by a signal handler amid any call. The first call starts the threads of
    ``Pump``, unless ``start`` did. In a forked child all methods do nothing.

    ``side_job``: at low rates ``add`` returns when the line is durable. ``warn`` is given one sentence at a time, from
    any thread. ``strict``: bad input is a ``UsageError`` instead of a warning. ``is_protected``: whether nobody can
    have closed the session yet (``Session.is_protected``); at other times nothing is written, and lines spill.
    ``local``: the file system of ``spill_dir``.
    """

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        run_dir: str,
        job: str,
        session: int,
        *,
        token: str,
        spill_dir: str | None = None,
        flush_interval: float = FLUSH_INTERVAL,
        side_job: bool = False,
        warn: Callable[[str], None],
        strict: bool = False,
        is_protected: Callable[[], bool] = lambda: True,
        local: FileSystem | None = None,
        spill_after: float = SPILL_AFTER,
        retry: float = STORE_RETRY,
    ) -> None:
        self._fs = fs
        self._local = local or LocalFileSystem()
        self._clock = clock
        self._run_dir = os.path.abspath(run_dir)
        self._job, self._session, self._token = job, session, token
        self._spill_dir = os.path.abspath(spill_dir) if spill_dir else default_folder()
        self._side_job = side_job
        self._strict = strict
        self._is_protected = is_protected
        self._piece = 0

        self._pending: list[Call] = []
        # Until the threads run, and once the writer is closed, an append is refused and ``add`` takes the long way.
        self._append: Callable[[Call], None] = _refuse
        self._limit = 0
        self._capacity = _BATCH
        self._now = clock.monotonic
        self._offset = clock.now_ns() / 1e9 - clock.monotonic()
        self._lock = shared_lock()  # taken by callers only where there are no threads
        self._crowded: deque[Latch] = deque()
        self._local_hangs = False
        self._state = "new"
        self._pid = os.getpid()
        self._side_calls: list[float] = []
        self._silent_at = -1
        self._outbox = Outbox(self._log(), self._new_spill, clock.monotonic, is_protected=is_protected)
        self._pump = Pump(
            self._outbox,
            self._encode_politely,
            warn,
            run_dir=self._run_dir,
            spill_dir=self._spill_dir,
            pace=Pace(flush_interval, spill_after, retry),
        )
        self._encoder = Encoder(self._pump.warn)
        _WRITERS.add(self)

    # The hot path.

    def add(
        self,
        values: Mapping[str, object],
        step: int | None = None,
        *,
        time: float | None = None,
        entry: str | None = None,
    ) -> None:
        """Log ``values`` (tag to number) at ``step``.

        Takes what ``core.values`` takes; a nested mapping counts as tags joined by ``/``. What cannot be logged is
        named in one warning a tag and reason, and the rest of the call counts. ``step``: a whole number; None means one
        more than the highest of this session so far, beginning with 0. ``time``: seconds since 1970 if it is not now.
        ``entry``: key of the outcome whose scores these are.

        Returns at once; in a side job at a low rate when the line is durable, after 2 s at most, and at once again
        where the folder takes nothing. Errors: ``UsageError``
        where ``strict`` (then nothing of the call is logged), else none.

        After a crash: a call that is older than the flush interval and one write is in the log, or in the spill.
        """
        try:
            for value in values.values():
                # Exactly these two types, which nobody can change later: the rest is read now, so that no tensor or
                # graph is kept alive, and a value that changes in place is logged as it was.
                if type(value) is not float and type(value) is not int:
                    break
            else:
                if time is None and entry is None:
                    # A copy: people fill one dict again and again.
                    self._append((step, self._now() + self._offset, {**values}, None))  # type: ignore[dict-item]
                    if len(self._pending) >= self._limit:
                        self._relieve()
                    return
        except Exception:  # noqa: BLE001 - a value's own methods may raise anything; the long way says what is wrong
            pass
        self._add_slowly(values, step, time, entry)

    def _add_slowly(self, values: object, step: object, time: object, entry: str | None) -> None:
        """Check everything; refuse by a warning, or an error where ``strict``."""
        numbers, refused = numeric_leaves(values)
        if not isinstance(values, Mapping):
            refused = {"": f"add_scalar takes a mapping of names to numbers: {refused.get('', '')}"}
        whole = None
        try:
            whole = None if step is None else as_step(step)
        except ValueError as error:
            numbers, refused = {}, {"": f"a call whose step is {error}"}
        now = self._now() + self._offset
        if time is not None:
            try:
                now = float(as_number(time))
            except ValueError as error:
                refused["time"] = str(error)
        if refused and self._strict:
            raise UsageError(
                "; ".join(f"{printable(tag)}: {reason}" if tag else reason for tag, reason in refused.items())
            )
        self._encoder.complain(refused)
        if numbers and self._start():
            self._pending.append((whole, now, numbers, entry))
            if len(self._pending) >= self._limit:
                self._relieve()

    def _relieve(self) -> None:
        """Memory is full, or this is a side job. Never raises, never waits for the run folder unless a side job."""
        try:
            if self._side_job and self._is_slow() and self._outbox.durable_lines != self._silent_at:
                # A folder that has not answered once is not waited for until it has taken something.
                self._silent_at = -1 if self.flush(SIDE_DURABLE_WAIT) else self._outbox.durable_lines
            if len(self._pending) >= self._capacity:
                self._make_room()
        except Exception as error:  # noqa: BLE001 - nothing that goes wrong here is the affair of the training
            self._pump.warn(f"logging: {type(error).__name__}: {error}")

    def _make_room(self) -> None:
        if not self._pump.runs:
            self._encode_all()
            return
        latch = Latch()
        self._crowded.append(latch)
        self._pump.poke()
        self._local_hangs = not latch.wait(_ROOM_WAIT_AGAIN if self._local_hangs else _ROOM_WAIT)
        if self._local_hangs and len(self._pending) > 2 * _BATCH:
            # The thread hangs with the local disk that it spills to. What is dropped is the newest: it holds the rest.
            self._pending.pop()
            self._pump.warn_once("room", f"{self._run_dir}: lines were lost: memory is full, and the local disk hangs")

    def _is_slow(self) -> bool:
        """Whether the last calls came at a rate at which each of them may wait."""
        now, calls = self._now(), self._side_calls
        calls.append(now)
        if len(calls) <= SIDE_DURABLE_RATE:
            return True
        return now - calls.pop(0) >= 1.0

    # Encoding.

    def _encode_some(self) -> bool:
        """Encode the oldest calls; False where there are none."""
        if is_mine(self._lock):
            return False  # a signal handler on top of this: what it interrupted goes on
        with self._lock:
            if self._state not in _RUNNING:
                return False
            batch = self._pending[:_BATCH]
            if not batch:
                return False
            data, count = self._encoder.encode(batch)
            del self._pending[: len(batch)]
            if count:
                self._outbox.put(data, count)
            self._capacity = max(_BATCH, int(_PENDING_BYTES / self._encoder.call_size))
            if self._limit:
                self._limit = self._capacity
            return True

    def _encode_all(self) -> None:
        """Encode what was logged so far; calls that come meanwhile are not waited for. In threads of fsrun."""
        for _ in range(len(self._pending) // _BATCH + 1):
            self._encode_some()

    def _have_encoded(self) -> None:
        """The same for a thread of the user, which waits for a thread of ours to do it."""
        if self._state != "open" or not self._pending or self._is_child():
            return
        if self._pump.runs:
            self._pump.ask(_ENCODED_WAIT)
        else:
            self._encode_all()

    def _encode_politely(self) -> None:
        """The same on a thread of its own, which lets the training's thread in after each batch."""
        # Time is the order of calls: a wall clock that is set back changes nothing here.
        offset = self._clock.now_ns() / 1e9 - self._clock.monotonic()
        if offset > self._offset + _CLOCK_STEP:
            self._offset = offset
        for _ in range(len(self._pending) // _BATCH + 1):
            self._encode_some()
            if len(self._pending) < self._capacity:
                self._let_in()
            self._clock.sleep(0)

    def _let_in(self) -> None:
        """Let those go on that waited for room."""
        while self._crowded:
            self._crowded.popleft().set()

    def start(self) -> None:
        """Start the threads, unless they were started: later on, a signal might come while a call does it."""
        with self._lock:
            if self._state == "new":
                self._pump.start(self._job)
                if not self._strict:
                    self._append = self._pending.append
                self._limit = 0 if self._side_job else self._capacity
                self._state = "open"

    def _start(self) -> bool:
        """Begin with the first call; False where nothing may be logged any more."""
        if self._state == "new":
            self.start()
        if self._state == "closed":
            self._pump.warn_once("closed", "the run has ended: what is logged now is not recorded")
        return self._state == "open"

    # What others ask.

    @property
    def last_step(self) -> int | None:
        """The highest step logged in this session so far."""
        self._have_encoded()
        return self._encoder.highest

    def summary(self) -> dict[str, int | float]:
        """The last value of each tag, in the order of the calls."""
        self._have_encoded()
        return dict(self._encoder.last)

    def kick(self) -> None:
        """Have all calls so far written now; does not wait. After a crash: as ``add``, a moment later."""
        if self._state == "open" and not self._is_child():
            self._pump.poke(write=True)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all calls so far are durable in the run folder; False after ``timeout`` seconds (None: 30).

        After a crash: what a true return covers is there.
        """
        if self._state not in _RUNNING or self._is_child():
            return self._state == "new"
        wait = FINISH_WAIT if timeout is None else timeout
        if self._pump.runs:
            return self._pump.ask(wait, durable=True)
        self._encode_all()
        return self._pump.flush(wait)

    def acknowledged(self) -> dict[str, int]:
        """Bytes of the session's log that write and fsync acknowledged, by path in the run folder.

        They are what a fence may state, so nothing more counts in that log from here on: what arrives meanwhile waits,
        and is written after ``reopen``. Call it for a fence, or after ``close``.
        """
        return {} if self._is_child() else self._outbox.seal()

    def reopen(self, session: int, token: str = "") -> None:
        """Go on as ``session`` (which continues the one before): what was in doubt is written again there."""
        if self._is_child():
            return
        with self._lock:
            self._session = session
            self._token = token or self._token
            self._outbox.reopen(self._log())

    def moved(self) -> None:
        """The run folder is said to be gone: see whether what was written last is still there."""
        if self._state in _RUNNING and not self._is_child():
            self._outbox.verify(0.0)

    def fenced(self) -> None:
        """A newer session is open: nothing more goes to the run folder; what was not durable yet is spilled."""
        if self._state == "open" and not self._is_child():
            self._append = _refuse
            self._encode_all()
            self._end("fenced")

    def close(self, timeout: float) -> bool:
        """Write what is left and stop, within ``timeout`` seconds; True if all of it is durable in the run folder.

        What the folder does not take is spilled, with one warning. Later calls of ``add`` log nothing.

        After a crash: what a true return covers is in the log, what a false one covers in the log or the spill.
        """
        with self._lock:
            if self._state != "open" or self._is_child():
                self._state = "closed" if self._state == "new" else self._state
                return True
            self._append, self._state = _refuse, "closing"
        self._encode_all()
        done = self._pump.flush(timeout, verify=True)
        self._end("closed")
        if done:
            self._pump.join(1.0)
        return done

    def _end(self, state: str) -> None:
        with self._lock:
            self._state, self._limit = state, 0
        self._pump.end()
        self._let_in()

    # Odds and ends.

    def _log(self) -> SessionLog:
        path = f"{layout.SCALARS}/{layout.scalars_name(self._job, self._session)}"
        return SessionLog(self._fs, self._run_dir, path, self._is_protected)

    def _new_spill(self) -> SpillFile:
        piece, self._piece = self._piece, self._piece + 1
        note = SpillNote(run_dir=self._run_dir, job=self._job, session=self._session, token=self._token, piece=piece)
        return SpillFile(self._local, self._spill_dir, note)

    def _is_child(self) -> bool:
        return os.getpid() != self._pid

    def _forget(self) -> None:
        """This is a forked child: the parent's lines are the parent's, and its locks may be held for ever."""
        self._state = "forked"
        self._append, self._limit = _refuse, 0
        self._lock = shared_lock()
        self._pending.clear()


def _refuse(call: Call) -> None:
    raise RuntimeError("not now")


_WRITERS: weakref.WeakSet[ScalarWriter] = weakref.WeakSet()


def _forget_all() -> None:
    for writer in list(_WRITERS):
        writer._forget()


os.register_at_fork(after_in_child=_forget_all)
