"""Hands checkpoints over to evaluation (protocol.md 5.1), without an error or a long wait for the trainer.

Does: ``enqueue`` by links, or by copies in a thread; another try where the folder takes nothing for a while; FINISHED
after all of it. Leaves to others: what is linked (``staging``), names and publication (``publication``), where the unit
is (``create``), claims (``entries``).
"""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from fsrun.core import codec, layout, order
from fsrun.core.errors import FsrunError
from fsrun.core.records import Finished, rfc3339
from fsrun.core.timing import HANDOVER_PAUSES, HANDOVER_WAIT
from fsrun.core.values import as_step, printable
from fsrun.disk.clock import Clock, SystemClock
from fsrun.disk.store import Store
from fsrun.run import staging
from fsrun.run.latch import Inbox
from fsrun.run.moves import Held
from fsrun.run.publication import Job, Publication, is_gone

_order_lock = threading.Lock()
_last_order = 0


def _next_order(called: int) -> int:
    """The time of the call in ns, but always later than the last answer: orders the hand-overs of a process.

    Not for a thread of the user, which takes no lock.
    """
    global _last_order
    with _order_lock:
        _last_order = max(called, _last_order + 1)
        return _last_order


_MOST_OPEN = 256
"""Files that what is tried again later keeps open, at most: the program needs some too."""
_PROTECTED_WAIT = 1.0
"""Seconds that FINISHED waits at a time for a heartbeat."""
_END, _NOTHING = Job(), Job()
"""What the copier is told besides jobs: that the run ends; that time has passed."""
_ANNOUNCED_LOOK = 0.2
"""Seconds between looks at whether what FINISHED waits for has arrived."""


class HandOver:
    """The trainer's side of the queue: one opener thread, and one that copies, started by the first hand-over.

    Threads may share it, and a signal handler may hand over amid any call: who hands over takes no lock (``latch``).
    ``warn`` is told, once each, what could not be handed over and why. Nothing here raises into the trainer.
    """

    def __init__(
        self,
        session: Held,
        unit: Store,
        *,
        warn: Callable[[str], object],
        clock: Clock | None = None,
        wait: float = HANDOVER_WAIT,
        lost: Callable[[str], object] | None = None,
        pauses: Sequence[float] = (),
        find_main: Callable[[], int | None] | None = None,
        reserve_last: bool = False,
    ) -> None:
        """``lost`` is told of each checkpoint that is not handed over, and why; else ``warn`` is.

        ``pauses``: seconds between tries where the folder takes nothing for a while, the last of them again and again
        until ``end`` is called; none: one try.
        ``find_main``: gives the session of main that an entry belongs to, where the call does not say it.

        Without it that is ``session``. It is called in the opener thread; what it raises is why the entry is dropped.
        ``reserve_last``: a copy is made before its name is reserved, and ``enqueue`` waits for the copy.

        For who takes a reserved name for handed over, and is killed while it copies.
        """
        self._session = session
        self._unit = unit
        self._tell = warn
        self._lost = lost or warn
        self._clock = clock or SystemClock()
        self._publication = Publication(session, unit, self._clock)
        self._wait = wait
        self._find_main = find_main
        self._reserve_last = reserve_last
        self._pid = os.getpid()
        self._opening: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._copying: Inbox[Job | None] = Inbox()
        self._elected = {work: threading.Lock() for work in (self._open_all, self._copy_all)}
        """What makes each of the two threads the only one, whoever starts them."""
        self._started = False
        self._jobs: dict[int, Job] = {}
        """What is not done yet."""
        self._pauses = tuple(pauses)
        self._waiting: list[Job] = []
        """What is tried again later, in the order of the calls; the copier's alone."""
        self._announced: dict[int, Job] = {}
        """What was still being written when it was announced, until it is done: FINISHED waits for it."""
        self.is_closed = False
        """Whether nothing is handed over any more."""
        self._ending = False
        self._advanced = -math.inf
        self._was_used = False
        self._finished = False

    @property
    def was_used(self) -> bool:
        """Whether anything was handed over, or tried to be."""
        return self._was_used

    @property
    def pending(self) -> int:
        """How many hand-overs are not done yet."""
        return len(self._jobs)

    def left(self) -> list[str]:
        """Their paths."""
        return [job.path for job in list(self._jobs.values()) if not job.finish]

    def advances(self, within: float) -> bool:
        """Whether something is on its way and got further in the last ``within`` seconds: worth waiting for."""
        return self.pending > 0 and self._clock.monotonic() - self._advanced < within

    def advance(self) -> None:
        """Something that is on its way got further."""
        self._advanced = self._clock.monotonic()

    def announce(self, path: str, *, step: int, name: str) -> Job | None:
        """Say that a checkpoint is being written that will be handed over: the end of the run and FINISHED wait for it.

        None where nothing can be handed over any more. Whoever announces calls ``arrive`` or ``withdraw`` later.
        """
        job = self._job(path, step, name, None)
        if job is None or self.is_closed or not self.start():
            return None
        self._was_used = True
        self._announced[id(job)] = self._jobs[id(job)] = job
        return job

    def arrive(self, job: Job) -> None:
        """What was announced stands at ``job.path``, and is handed over now; ``job.ended`` says when that is done."""
        self.advance()
        if self.is_closed:
            self.withdraw(job)
        else:
            self._opening.put(job)

    def withdraw(self, job: Job) -> None:
        """What was announced does not come."""
        self._end(job)

    def enqueue(
        self, path: object, *, step: object = None, name: object = None, main_session: int | None = None
    ) -> str | None:
        """Hand over a file or folder; returns its entry's name.

        ``step``: the training step it belongs to; without one, the step that its name tells. ``name``: the entry's
        name, by default the last part of ``path``; one that was used before becomes ``X~2``. Returns within 1 s; None
        where nothing was handed over, or where that is not known yet (a warning says which). Never raises.

        After a crash: the entry stands whole in queue/, or not at all; perhaps a reserved name and a hidden temporary.
        """
        try:
            job = self._job(path, step, name, main_session)
            if job is None:
                return None
            self._was_used = True
            if self._finished:
                self._warn(f"{job.path} is handed over after finish_queue(): evaluators may have ended")
            self._submit(job)
            if not job.answered.wait(self._wait):
                self._warn(f"{job.path}: handing over takes more than {self._wait:g} s and goes on in a thread")
            return job.name
        except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
            self._lose(f"{printable(repr(path))} is not handed over: {error!r}")
            return None

    def _job(self, path: object, step: object, name: object, main_session: int | None) -> Job | None:
        if os.getpid() != self._pid:
            return None
        decoded = os.fsdecode(path)  # type: ignore[arg-type]
        if not decoded:
            raise ValueError("an empty path, which would be the working folder")
        given = os.path.abspath(decoded)
        text = str(name) if name is not None else os.path.basename(given)
        entry = order.portable_entry(text)
        if entry != text:
            self._warn(f"{printable(text)!r} cannot be the name of an entry: handed over as {entry!r}")
        number = order.step_of_name(entry)
        if step is not None:
            try:
                number = as_step(step)
            except ValueError as error:
                self._warn(f"enqueue {entry}: the step is {error}; the name gives {number}")
        session = main_session
        if session is None and self._find_main is None:
            session = self._session.number
        return Job(given, entry, number, session, self._clock.now_ns())

    def finish(self, timeout: float | None = None) -> bool:
        """Say that no more is handed over: writes FINISHED once every hand-over so far is durable.

        Returns whether it is written, after ``timeout`` seconds (1 by default); the thread goes on. Never raises.
        After a crash: FINISHED is there or not, and never before an entry that was handed over before it.
        """
        return self.finished_again(self._session.number, timeout, first=True)

    def finished_again(self, new_session: int, timeout: float | None = 0.0, *, first: bool = False) -> bool:
        """Write FINISHED anew, naming the session that continues the one it names; nothing where there is none."""
        if os.getpid() != self._pid or not (first or self._finished):
            return False
        self._finished = True
        job = Job(finish=new_session)
        try:
            self._submit(job)
        except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
            self._warn(f"FINISHED is not written: {error!r}")
            return False
        job.answered.wait(self._wait if timeout is None else timeout)
        return job.name is not None

    def drain(self, timeout: float | None, *, announced: bool = False) -> bool:
        """Wait until everything handed over is durable; False after ``timeout`` seconds (None: as long as it takes).

        ``announced``: what was announced alone.
        """
        if os.getpid() != self._pid:
            return True
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while jobs := list((self._announced if announced else self._jobs).values()):
            # Whoever handed over may have been interrupted before it did start them.
            if not self.start() or not jobs[0].ended.wait(None if timeout is None else deadline - time.monotonic()):
                return False
        return True

    def end(self) -> None:
        """The run ends: what waits to be tried again is tried now, a few times more, and then given up."""
        if os.getpid() == self._pid:
            self._copying.put(_END)

    def close(self) -> None:
        """Let the threads end, once what was handed over is done."""
        if os.getpid() == self._pid:
            self.is_closed = True
            self._opening.put(None)

    def _submit(self, job: Job) -> None:
        if not self.start():
            raise RuntimeError("no thread can be started any more")
        self._jobs[id(job)] = job
        self._opening.put(job)

    def start(self) -> bool:
        """Start the threads, unless they were started; False where that is not possible any more (at exit)."""
        if not self._started:
            for work, name in ((self._copy_all, "copy"), (self._open_all, "open")):
                thread = threading.Thread(target=self._alone, args=(work,), name=f"fsrun-handover-{name}", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return False
            self._started = True
        return True

    def _alone(self, work: Callable[[], None]) -> None:
        if self._elected[work].acquire(blocking=False):
            work()

    def _open_all(self) -> None:
        while (job := self._opening.get()) is not None:
            job.order = _next_order(job.called)
            if not self._try(self._open, job):
                if job.name is not None or job.tries:
                    job.answered.set()
                self._copying.put(job)
        self._copying.put(None)

    def _copy_all(self) -> None:
        """Copy, and try again what waits. FINISHED waits for all that was handed over before it."""
        while (job := self._next()) is not None:
            if job is _END:
                self._ending = True
                for waiting in self._waiting:
                    waiting.tries, waiting.due = 0, 0.0
            elif job is not _NOTHING and not self._copies_now(job):
                if self._ending:  # put off just before that was said
                    job.tries, job.due = 0, 0.0
                self._waiting.append(job)
            self._try_again()
        for job in self._waiting:
            self._failed(job, "the run has ended")
            self._end(job)

    def _copies_now(self, job: Job) -> bool:
        """Whether a job is done now, or for good; else it waits."""
        waits = job.tries > 0 or (job.finish > 0 and bool(self._waiting or self._announced))
        return not waits and self._try(self._copy, job)

    def _next(self) -> Job | None:
        """What comes next; ``_NOTHING`` where what waits is due before that."""
        if not self._waiting:
            return self._copying.take()
        # FINISHED is due once nothing is before it.
        due = min(job.due for at, job in enumerate(self._waiting) if not (job.finish and at))
        try:
            return self._copying.take(due - self._clock.monotonic())
        except queue.Empty:
            return _NOTHING

    def _try_again(self) -> None:
        left: list[Job] = []
        for job in self._waiting:
            if job.finish and self._announced:
                job.due = self._clock.monotonic() + _ANNOUNCED_LOOK
            later = job.due > self._clock.monotonic() or bool(job.finish and left)
            if later or not self._try(lambda job: self._open(job) or self._copy(job), job):
                left.append(job)
        self._waiting = left

    def _try(self, work: Callable[[Job], bool], job: Job) -> bool:
        """Do a part of a job; True where that was the last one, or it failed."""
        done = True
        try:
            done = work(job)
        except FsrunError as error:
            self._failed(job, str(error))
        except OSError as error:
            if self._puts_off(job, error):
                return False
            self._failed(job, _reason(error))
        except ValueError as error:
            self._failed(job, str(error))
        except Exception as error:  # noqa: BLE001 - a thread that ends would silently end all hand-overs
            self._failed(job, repr(error))
        if done:
            self._end(job)
        return done

    def _puts_off(self, job: Job, error: OSError) -> bool:
        """Whether a job is tried again later: the folder is full or gone for a while, say. Its source stays open."""
        ends = self._ending and (job.tries >= len(self._pauses) or is_gone(self._unit))
        if ends or not self._pauses:
            return False
        open_files = sum(other.source.held for other in list(self._jobs.values()) if other.source is not None)
        if not job.finish and (job.source is None or open_files > _MOST_OPEN):
            return False
        if not job.tries and not self._ending:
            what = layout.FINISHED if job.finish else job.path
            self._warn(f"{what} waits to be handed over ({_reason(error)}): tried again until the run ends")
        job.due = self._clock.monotonic() + self._pauses[min(job.tries, len(self._pauses) - 1)]
        job.tries += 1
        return True

    def _end(self, job: Job) -> None:
        try:
            if job.source is not None:
                job.source.close()
            if job.after is not None:
                with suppress(Exception):
                    job.after()
            job.answered.set()
            self.advance()
        finally:  # A handler may raise amid this where a thread of the user withdraws: nobody shall wait for the job.
            self._announced.pop(id(job), None)
            self._jobs.pop(id(job), None)
            job.ended.set()

    def _failed(self, job: Job, why: str) -> None:
        if job.published:
            self._warn(f"{job.path} is handed over as {job.name}, but perhaps not durably: {why}")
            return
        self._undo(job)
        if job.finish:
            self._warn(f"{self._unit.path(layout.QUEUE, layout.FINISHED)} is not written: {why}")
        else:
            self._lose(f"{job.path} is not handed over: {why}")

    def _undo(self, job: Job) -> None:
        """Take back what was not published. A name that the caller was told stays reserved: `fsrun check` names it."""
        if job.staged is not None and not job.published:
            staging.discard(self._unit.fs, job.staged)
            if job.name is not None and not job.answered.is_set:
                self._release(job.name)
                job.name = None

    def _release(self, name: str) -> None:
        """Give up a name that was reserved here and never used."""
        with suppress(OSError):
            if not self._unit.present(f"{layout.QUEUE}/{name}"):
                self._unit.fs.unlink(self._unit.path(layout.META, layout.meta_name(name)))

    def _open(self, job: Job) -> bool:
        """Link it, or open it for the copier; True where the job is done."""
        if job.finish:
            return False
        if job.source is None:
            job.source = staging.Source(self._unit.fs, job.path)
        if job.main_session is None and self._find_main is not None:
            job.main_session = self._find_main()
        if job.staged is None:
            job.staged = job.source.stage(self._unit)
            if job.staged.left_out:
                left = ", ".join(printable(text) for text in job.staged.left_out[:5])
                self._warn(f"{job.path} is handed over without what is no part of a checkpoint: {left}")
        if job.staged.to_copy and self._reserve_last:
            return False
        if job.name is None:
            self._publication.reserve(job, job.entry)
        if not job.staged.to_copy:
            self._publication.publish(job)
            return True
        return False

    def _copy(self, job: Job) -> bool:
        if job.finish:
            self._write_finished(job)
            return True
        assert job.source is not None
        assert job.staged is not None
        job.source.copy(job.staged, self.advance)
        if job.name is None:
            self._publication.reserve(job, job.entry)
        self._publication.publish(job)
        return True

    def _write_finished(self, job: Job) -> None:
        record = Finished(
            main_session=job.finish, token=self._session.token, written=rfc3339(self._clock.now_ns())
        ).to_json()
        for pause in (*(() if self._pauses else HANDOVER_PAUSES), None):
            try:
                # Where it is tried again later anyhow, a session that cannot beat is not waited for.
                self._session.require_protected(_PROTECTED_WAIT if self._pauses else None)
                self._unit.replace(layout.QUEUE, layout.FINISHED, codec.encode_record(record))
                break
            except OSError:
                if pause is None:
                    raise
                time.sleep(pause)
        job.name = layout.FINISHED

    def _warn(self, message: str) -> None:
        with suppress(Exception):
            self._tell(message)

    def _lose(self, message: str) -> None:
        with suppress(Exception):
            self._lost(message)


def _reason(error: OSError) -> str:
    name = os.path.basename(str(error.filename)) if error.filename else ""
    return f"{error.strerror or error}{f' ({printable(name)})' if name else ''}"


def withdraw_finished(session: Held, unit: Store) -> bool:
    """Remove FINISHED: a new main process hands over again. True where there was one.

    After a crash: it is there or not; it is not obeyed either way, since it does not name the session now open.
    """
    if layout.FINISHED not in unit.names(layout.QUEUE):
        return False
    session.require_protected()
    return unit.discard(f"{layout.QUEUE}/{layout.FINISHED}")
