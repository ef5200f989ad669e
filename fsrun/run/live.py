"""A run that is open in this process: its session, log, hand-over and views.

Does: keeps the views fresh, answers the session (acknowledged bytes, going on after a false verdict, fenced, moved),
gives evaluators what they need. Leaves to others: the surface that users see (``run``), opening (``opening``), the end
(``closer``), how the process leaves (``life``), what each part does.

Two threads wait here from the start, since none can be started while the interpreter shuts down: the keeper writes the
views, the closer ends the run. Whatever hangs with the file system hangs in them, not in the user's thread.

protocol.md: 4 (sessions, views).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from fsrun.core import ids, layout
from fsrun.core.capture import Capture
from fsrun.core.config import encode_config
from fsrun.core.errors import FsrunError
from fsrun.core.order import step_of_name
from fsrun.core.records import rfc3339
from fsrun.core.sessions import look
from fsrun.core.timing import FINISH_WAIT, HANDOVER_PAUSES, VIEW_LOOK
from fsrun.disk.clock import Clock
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import Store
from fsrun.run import chain as steps
from fsrun.run import create, endings, views
from fsrun.run.capture import Captures
from fsrun.run.closer import Closer
from fsrun.run.create import Location
from fsrun.run.endings import Ending
from fsrun.run.handover import HandOver, withdraw_finished
from fsrun.run.life import LIFE
from fsrun.run.listing import last_logged_step, read_end
from fsrun.run.notices import Notices
from fsrun.run.recorder import Recorder

if TYPE_CHECKING:
    from fsrun.run.entries import Evaluation
    from fsrun.run.session import Session
    from fsrun.run.writer import ScalarWriter

_MOST_TAGS = 50_000
"""Tags in the summary of a view and an end: with more of the longest it could be longer than a record."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What ``init`` found and made, of which a run is built."""

    fs: FileSystem
    clock: Clock
    where: Location
    session: Session
    config: Mapping[str, Any]
    name: str | None
    unit: Mapping[str, Any] | None
    unit_path: str
    on_fenced: str
    capture: Capture


class LiveRun:
    """The parts of one open run. Implements what ``Session``, ``entries`` and ``Life`` ask of a run."""

    def __init__(self, opened: Opened, writer: ScalarWriter, notices: Notices) -> None:
        self.opened = opened
        self.fs = opened.fs
        self.clock = opened.clock
        self.session = opened.session
        self.writer = writer
        self.notices = notices
        self.warn: Callable[[str], None] = notices.warn
        self.summary: dict[str, Any] = {}
        self.attached: dict[str, Any] = {}
        """What parts above this layer keep with the run, by their name; let go when it has ended."""
        self.on_quiet: Callable[[str | None], None] = lambda message: None
        """Called when the run falls quiet: with the message where it was fenced, with None in a forked child."""
        self.unit = Store(self.fs, opened.unit_path, self.session.job, self.session.number)
        self.handover = HandOver(
            self.session,
            self.unit,
            warn=self.warn,
            lost=notices.lost,
            clock=self.clock,
            pauses=HANDOVER_PAUSES,
            find_main=None if self.job == ids.MAIN else self._main_session,
        )
        self.recorder = Recorder(
            self.fs,
            self.clock,
            self.session.run_dir,
            self.session.job,
            self.session.number,
            self.warn,
            self.session.is_protected,
        )
        self.captures = Captures(opened.capture, self.fs, self.clock, self.session, self.warn)
        self.finish_wait = FINISH_WAIT
        """Seconds that ``finish`` takes at most."""
        self.queue_finished = False
        self.queue_reachable = True
        self._evaluations: weakref.WeakSet[Evaluation] = weakref.WeakSet()
        self.is_fenced = False
        self._closer = Closer(self)
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._tags = 0
        self._viewed = 0.0
        self._view_lock = threading.Lock()
        self._opened_at = rfc3339(self.clock.now_ns())

    @property
    def job(self) -> str:
        """The job's name."""
        return self.session.job

    def start(self) -> None:
        """Start the threads, register with the process, write the first view.

        After a crash: the session expires; an older FINISHED stands or not, and is not obeyed.
        """
        self.session.listener = self
        for work, name in ((self._keep, "keeper"), (self._closer.run, "closer")):
            threading.Thread(target=work, name=f"fsrun-{name}-{self.job}", daemon=True).start()
        self.writer.start()
        self.session.start()
        self.captures.start()
        LIFE.add(self)
        if self.job == ids.MAIN:
            self._prepare_queue()
        try:
            if self.job != ids.MAIN:
                self._warn_of_shared_tags(views.read(self.session.store, self.job).get("summary"))
            self._write_view()
        except OSError as error:
            self._tell_of_view(error)
        self._ready.set()

    def _prepare_queue(self) -> None:
        """A new process of main hands over again: an older FINISHED goes."""
        self.handover.start()
        try:
            create.find_unit(self.fs, self.path, self.opened.unit)
            if self.session.number > 1:
                withdraw_finished(self.session, self.unit)
        except FsrunError as error:
            self.queue_reachable = False
            self.warn(f"{error}; what is handed over is dropped")
        except OSError as error:
            self.warn(f"{self.unit.path(layout.QUEUE, layout.FINISHED)} of an earlier process stays: {error}")

    # What users ask.

    def enqueue(self, path: str, step: object, name: str | None) -> str | None:
        """Hand a checkpoint over, by the step given, else that of its name, else the last one logged.

        What was logged before it is written at once: a checkpoint that is evaluated should have its curve.
        """
        self.writer.kick()
        if not self.queue_reachable:
            self.notices.lost(f"{path} is not handed over: the unit cannot be reached")
            return None
        if step is None and step_of_name(name or os.path.basename(os.path.normpath(path))) is None:
            step = self.writer.last_step
        return self.handover.enqueue(path, step=step, name=name)

    def _main_session(self) -> int | None:
        """For whom a side job hands over; asked in the thread that does, since the folder may hang."""
        create.find_unit(self.fs, self.path, self.opened.unit)
        try:
            return steps.look(self.fs, self.path, ids.MAIN).highest or None
        except OSError:
            return None  # better an entry that does not say it than a checkpoint that is lost

    def finish_queue(self) -> None:
        """Say that no more is handed over."""
        self.queue_finished = True
        if self.queue_reachable:
            self.handover.finish()

    # What the session asks.

    def acknowledged(self) -> dict[str, int]:
        """Bytes of each log of the session that write and fsync acknowledged; nothing more counts in them."""
        return self.writer.acknowledged() | self.recorder.acknowledged() | self.captures.acknowledged()

    def continued(self, old: int, new: int) -> None:
        """The session was closed by somebody although its holder lives: go on in session ``new``."""
        self.writer.reopen(new, self.session.token)
        self.recorder.reopen(new)
        self.captures.reopen(new)
        self.unit = Store(self.fs, self.unit.root, self.job, new)
        self.handover.finished_again(new)
        self.warn(f"{self.path}: session {old} was closed by another process; logging goes on as session {new}")
        self._viewed = 0.0

    def fenced(self, message: str) -> None:
        """A newer session is open: stop logging, say so loudly, let the training go on."""
        if self.is_fenced:
            return
        self.is_fenced = True
        self.writer.fenced()
        self.recorder.fenced()
        self.captures.fenced()
        self.on_quiet(message)
        self.notices.warn(f"LOGGING HAS STOPPED: {message}. The program goes on; nothing more of it is recorded.")

    def moved(self, message: str) -> None:
        """The run folder is gone from its place: the log spills, nothing is made anew."""
        self.warn(message)
        self.writer.moved()
        self.recorder.moved()
        self.captures.moved()

    # What evaluators ask.

    @property
    def path(self) -> str:
        """The run folder."""
        return self.session.run_dir

    def log_outcome(
        self, entry: str, attempt: int, scores: Mapping[str, int | float], step: int | None, time: float
    ) -> None:
        """Log the scores of an outcome that stands as a line of this job, keyed by the outcome.

        Without a step there is no line: readers then open the outcome.
        """
        if step is not None:
            self.writer.add(scores, step, time=time, entry=layout.outcome_key(entry, attempt))

    def main_state(self, *, step: bool = True) -> tuple[int, str, int | None]:
        """Highest session of main (0: never opened), its status, the last step it logged.

        Without ``step`` that is None and no log is read: an evaluator that waits asks once a second.
        """
        if self.job == ids.MAIN:
            return self.session.number, "running", self.writer.last_step
        chain = look(self.fs.names(f"{self.path}/{layout.JOBS}"), ids.MAIN)
        if not chain.highest:
            return 0, "unknown", None
        status = "running"
        if chain.closed:
            end, _ = read_end(self.fs, self.path, ids.MAIN, chain.highest)
            status = str(end.get("status", "crashed"))
        logged = None
        for number in sorted(chain.locks, reverse=True) if step else ():
            logged = last_logged_step(self.fs, self.path, ids.MAIN, number)
            if logged is not None:
                break
        return chain.highest, status, logged

    def entries(self, options: Mapping[str, Any]) -> Evaluation:
        """The entries of the run's queue, claimed one after the other."""
        from fsrun.run.entries import entries

        create.find_unit(self.fs, self.path, self.opened.unit)
        evaluation = entries(self, **options)
        self._evaluations.add(evaluation)
        return evaluation

    # What the process asks.

    def say(self, ending: Ending) -> None:
        """The user's own word on how the run ends."""
        self._closer.say(ending)

    def begin_end(self, seen: Ending, hurry: float | None) -> float:
        """Have the run ended by its thread; returns the seconds it may take."""
        return self._closer.begin(seen, self.finish_wait, hurry)

    def await_end(self, wait: float) -> None:
        """Wait for the end. Never raises."""
        if self._closer.wait(wait):
            LIFE.remove(self)

    def forget(self) -> None:
        """This is a forked child."""
        self.captures.forget()
        self.on_quiet(None)

    def _tell_of_view(self, error: Exception) -> None:
        self.notices.warn(f"{self.path}: {layout.job_view(self.job)} could not be written: {error}", kind="view")

    def full_summary(self) -> dict[str, Any]:
        """The last value of each tag (of the first 50,000), with what the user put into the summary on top."""
        return {**dict(islice(self.writer.summary().items(), _MOST_TAGS)), **encode_config(dict(self.summary))}

    # What the closer asks.

    def stop_viewing(self) -> None:
        """No view of an open session is written from now on."""
        self._stop.set()

    def give_back(self) -> None:
        """Give back what evaluators hold."""
        for evaluation in list(self._evaluations):
            evaluation.close()

    def write_last_view(self, ending: Ending) -> None:
        """Write the view of the closed session, unless the next one is there already."""
        store = self.session.store
        try:
            with self._view_lock:
                view = self._view(ending)
                if steps.look(self.fs, self.path, self.job).highest == view.session:
                    views.write(store, view)
                    views.correct(store, self.job, view.session)
        except OSError as error:
            self._tell_of_view(error)

    # The keeper.

    def _keep(self) -> None:
        timing = self.session.timing
        pause = min(VIEW_LOOK, timing.beat_interval)
        self._ready.wait()
        while not self._stop.wait(pause):
            try:
                self._look_around(timing.view_interval)
            except Exception as error:  # noqa: BLE001 - a view is for people; the next round tries again
                self._tell_of_view(error)

    def _look_around(self, interval: float) -> None:
        tags = len(self.writer.summary())
        new = tags != self._tags
        if new and tags and self.job != ids.MAIN:
            self._warn_of_shared_tags(self.writer.summary())
        if new or self.clock.monotonic() - self._viewed >= interval:
            self._write_view()
            self._tags = tags

    def _warn_of_shared_tags(self, ours: object) -> None:
        """A side job that logs what main logs replaces it from its first step on: said once."""
        theirs = views.read(self.session.store, ids.MAIN).get("summary")
        shared = sorted({*ours} & {*theirs}) if isinstance(ours, dict) and isinstance(theirs, dict) else []
        if shared:
            names = ", ".join(shared[:5]) + (" ..." if len(shared) > 5 else "")
            self.notices.warn(
                f"job {self.job} logs what main also logs ({names}): from its first step on its values replace main's; "
                f"log under names of the job's own, such as {self.job}/...",
                kind="shared tags",
            )

    def _write_view(self) -> None:
        """Write the view of the open session, which is protected work; not after the closer's."""
        with self._view_lock:
            if self.is_fenced or self._stop.is_set() or not self.session.is_protected():
                return
            view = self._view(None)
            views.write(self.session.store, view)
            if not self.session.is_protected():
                # This process may have been stopped before the rename, and the job taken over meanwhile.
                views.correct(self.session.store, self.job, view.session)
            self._viewed = self.clock.monotonic()

    def _view(self, ending: Ending | None) -> views.View:
        opened, now = self.opened, rfc3339(self.clock.now_ns())
        return views.View(
            project=opened.where.project,
            run=opened.where.run,
            name=opened.name,
            job=self.job,
            session=self.session.number,
            status="running" if ending is None else ending.status,
            reason=None if ending is None else ending.reason,
            heartbeat=now,
            opened=self._opened_at,
            ended=None if ending is None else now,
            step=self.writer.last_step,
            holder=self.session.lock.holder,
            config=opened.config,
            summary=self.full_summary(),
            unit=opened.unit if self.job == ids.MAIN else None,
        )


def failed(reason: object) -> Ending:
    """The user's word that the run failed."""
    return replace(endings.FINISHED, status="failed", reason=None if reason is None else endings.words_of(reason))
