"""Hands checkpoints over to evaluation (protocol.md 5.1), without an error or a long wait for the trainer.

Does: ``enqueue`` by links, or by copies in a thread; names that were used before; FINISHED. Leaves to others: what is
linked (``staging``), where the unit is (``create``), claims (``entries``).
"""

from __future__ import annotations

import errno
import math
import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fsrun.core import codec, layout, order
from fsrun.core.errors import FsrunError
from fsrun.core.records import Finished, Meta, rfc3339
from fsrun.core.timing import HANDOVER_WAIT
from fsrun.core.values import as_step, printable
from fsrun.disk.clock import Clock, SystemClock
from fsrun.disk.store import NO_LINKS, Store
from fsrun.run import staging
from fsrun.run.latch import Latch
from fsrun.run.moves import Held
from fsrun.run.places import reserve

_IN_THE_WAY = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR})
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


@dataclass
class _Job:
    """One thing to do, in the order of the calls."""

    path: str = ""
    entry: str = ""
    step: int | None = None
    main_session: int | None = None
    called: int = 0
    """When, in ns since 1970."""
    order: int = 0
    finish: int = 0
    """The main session that FINISHED is to name; 0: this is a hand-over."""
    source: staging.Source | None = None
    staged: staging.Staged | None = None
    name: str | None = None
    published: bool = False
    answered: Latch = field(default_factory=Latch)
    ended: Latch = field(default_factory=Latch)


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
        find_main: Callable[[], int | None] | None = None,
        reserve_last: bool = False,
    ) -> None:
        """``lost`` is told of each checkpoint that is not handed over, and why; else ``warn`` is.

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
        self._wait = wait
        self._find_main = find_main
        self._reserve_last = reserve_last
        self._pid = os.getpid()
        self._opening: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._copying: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._elected = {work: threading.Lock() for work in (self._open_all, self._copy_all)}
        """What makes each of the two threads the only one, whoever starts them."""
        self._started = False
        self._jobs: dict[int, _Job] = {}
        """What is not done yet."""
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

    def _advance(self) -> None:
        self._advanced = self._clock.monotonic()

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

    def enqueue_now(
        self, path: object, *, step: object = None, name: object = None, main_session: int | None = None
    ) -> str:
        """Hand over and wait until it is durable, in the calling thread: for commands. Returns the entry's name.

        Raises ``OSError`` or ``ValueError`` where it cannot be; then nothing is left behind.
        After a crash: as ``enqueue``.
        """
        job = self._job(path, step, name, main_session)
        if job is None:
            raise ValueError("this process was forked from the one that hands over")
        try:
            job.order = _next_order(job.called)
            if not self._open(job):
                self._copy(job)
        except Exception:
            self._undo(job)
            raise
        finally:
            if job.source is not None:
                job.source.close()
        assert job.name is not None
        return job.name

    def _job(self, path: object, step: object, name: object, main_session: int | None) -> _Job | None:
        if os.getpid() != self._pid:
            return None
        given = os.path.abspath(os.fsdecode(path))  # type: ignore[arg-type]
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
        return _Job(given, entry, number, session, self._clock.now_ns())

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
        job = _Job(finish=new_session)
        try:
            self._submit(job)
        except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
            self._warn(f"FINISHED is not written: {error!r}")
            return False
        job.answered.wait(self._wait if timeout is None else timeout)
        return job.name is not None

    def drain(self, timeout: float | None) -> bool:
        """Wait until everything handed over is durable; False after ``timeout`` seconds (None: as long as it takes)."""
        if os.getpid() != self._pid:
            return True
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while jobs := list(self._jobs.values()):
            # Whoever handed over may have been interrupted before it did start them.
            if not self.start() or not jobs[0].ended.wait(None if timeout is None else deadline - time.monotonic()):
                return False
        return True

    def close(self) -> None:
        """Let the threads end, once what was handed over is done."""
        if os.getpid() == self._pid:
            self._opening.put(None)

    def _submit(self, job: _Job) -> None:
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
                if job.name is not None:
                    job.answered.set()
                self._copying.put(job)
        self._copying.put(None)

    def _copy_all(self) -> None:
        while (job := self._copying.get()) is not None:
            self._try(self._copy, job)

    def _try(self, work: Callable[[_Job], bool], job: _Job) -> bool:
        """Do a part of a job; True where that was the last one, or it failed."""
        done = True
        try:
            done = work(job)
        except FsrunError as error:
            self._failed(job, str(error))
        except OSError as error:
            self._failed(job, _reason(error))
        except ValueError as error:
            self._failed(job, str(error))
        except Exception as error:  # noqa: BLE001 - a thread that ends would silently end all hand-overs
            self._failed(job, repr(error))
        if done:
            self._end(job)
        return done

    def _end(self, job: _Job) -> None:
        if job.source is not None:
            job.source.close()
        job.answered.set()
        self._advance()
        self._jobs.pop(id(job), None)
        job.ended.set()

    def _failed(self, job: _Job, why: str) -> None:
        if job.published:
            self._warn(f"{job.path} is handed over as {job.name}, but perhaps not durably: {why}")
            return
        self._undo(job)
        if job.finish:
            self._warn(f"{self._unit.path(layout.QUEUE, layout.FINISHED)} is not written: {why}")
        else:
            self._lose(f"{job.path} is not handed over: {why}")

    def _undo(self, job: _Job) -> None:
        if job.staged is not None and not job.published:
            staging.discard(self._unit.fs, job.staged)
            if job.name is not None:
                self._release(job.name)
            job.name = None

    def _release(self, name: str) -> None:
        """Give up a name that was reserved here and never used."""
        with suppress(OSError):
            if not self._unit.present(f"{layout.QUEUE}/{name}"):
                self._unit.fs.unlink(self._unit.path(layout.META, layout.meta_name(name)))

    def _open(self, job: _Job) -> bool:
        """Link it, or open it for the copier; True where the job is done."""
        if job.finish:
            return False
        job.source = staging.Source(self._unit.fs, job.path)
        if job.main_session is None and self._find_main is not None:
            job.main_session = self._find_main()
        job.staged = job.source.stage(self._unit)
        if job.staged.left_out:
            left = ", ".join(printable(text) for text in job.staged.left_out[:5])
            self._warn(f"{job.path} is handed over without what is no part of a checkpoint: {left}")
        if job.staged.to_copy and self._reserve_last:
            return False
        self._reserve(job, job.entry)
        if not job.staged.to_copy:
            self._publish(job)
            return True
        return False

    def _copy(self, job: _Job) -> bool:
        if job.finish:
            self._write_finished(job)
            return True
        assert job.source is not None
        assert job.staged is not None
        job.source.copy(job.staged, self._advance)
        if job.name is None:
            self._reserve(job, job.entry)
        self._publish(job)
        return True

    def _reserve(self, job: _Job, entry: str) -> None:
        """Put the meta, under the next name that was never used. Copies have a time of their own: none is stated."""
        assert job.staged is not None
        copied = {item["name"] for item, _ in job.staged.to_copy}
        files: list[dict[str, Any]] = [
            {key: value for key, value in item.items() if key != "mtime_ns" or item["name"] not in copied}
            for item in job.staged.files
        ]
        meta = Meta(
            entry=entry,
            step=job.step,
            main_session=job.main_session,
            kind=job.staged.kind,
            files=files,
            size=job.staged.size,
            handed_over=rfc3339(self._clock.now_ns()),
            order=job.order,
            source=job.path,
        )
        job.name = reserve(self._unit, meta)

    def _publish(self, job: _Job) -> None:
        """Give what is staged the name that was reserved for it, or the next where a plain writer's file has that."""
        assert job.staged is not None
        assert job.name is not None
        fs, staged = self._unit.fs, job.staged
        for folder in reversed(staged.folders):
            fs.sync_folder(folder)
        while not (self._link_in(staged.temp, job.name) if staged.kind == "file" else self._rename_in(job)):
            name = job.name
            with suppress(OSError):
                fs.unlink(self._unit.path(layout.META, layout.meta_name(name)))
            self._reserve(job, order.next_use(name, {name}))
        job.published = True
        fs.sync_folder(self._unit.path(layout.QUEUE))

    def _link_in(self, temp: str, name: str) -> bool:
        """Publish a file; False where another one has that name. A rename alone would replace it."""
        fs, target = self._unit.fs, self._unit.path(layout.QUEUE, name)
        try:
            fs.link(temp, target)
        except OSError as error:
            if error.errno in NO_LINKS:
                if self._unit.present(f"{layout.QUEUE}/{name}"):
                    return False
                fs.rename(temp, target)
                return True
            if not self._same(temp, target):
                if isinstance(error, FileExistsError):
                    return False
                raise
        with suppress(OSError):
            fs.unlink(temp)
        return True

    def _same(self, temp: str, target: str) -> bool:
        """Whether a link that was reported as failed has happened."""
        try:
            mine, there = self._unit.fs.stat(temp), self._unit.fs.stat(target)
        except OSError:
            return False
        return (mine.device, mine.inode) == (there.device, there.inode)

    def _rename_in(self, job: _Job) -> bool:
        assert job.staged is not None
        temp = job.staged.temp.removeprefix(f"{self._unit.root}/")
        try:
            return self._unit.move(temp, f"{layout.QUEUE}/{job.name}")
        except OSError as error:
            if error.errno in _IN_THE_WAY:
                return False
            raise

    def _write_finished(self, job: _Job) -> None:
        record = Finished(
            main_session=job.finish, token=self._session.token, written=rfc3339(self._clock.now_ns())
        ).to_json()
        for pause in (0.2, 1.0, 5.0, None):
            try:
                self._session.require_protected()
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
