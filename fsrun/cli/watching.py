"""``fsrun enqueue --watch``: stands in for a trainer that cannot be edited, or hands over beside one that logs itself.

Does: which job of which run this is, when the watch is over, what is said. Leaves to others: which names are finished
checkpoints (``run.watch``), the hand-over (``run.outside``), the session (``fsrun.init``).
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

import click

from fsrun.cli.text import clean, say
from fsrun.core.errors import FsrunError, HeldError, NotFoundError
from fsrun.core.ids import MAIN
from fsrun.disk.fs import FileSystem, LocalFileSystem

if TYPE_CHECKING:
    from fsrun.core.records import Lock
    from fsrun.run.outside import OutsideQueue
    from fsrun.run.run import Run
    from fsrun.run.watch import FolderWatch

SIDE_JOB = "watch"
"""The job of a watcher beside a main job that is a trainer of its own."""
_TRIES = 3
"""How often a checkpoint is tried that could not be handed over."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to watch, as whom, and until when; times in seconds."""

    folder: str
    pattern: str
    settle: float
    ready: str | None
    """What a checkpoint that is a folder must hold."""
    poll: float
    linger: float
    job: str | None
    """None: main where there is no other trainer, else ``SIDE_JOB``."""
    finish: bool
    until_file: str | None
    idle: float | None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a run will be, or the folder where it is with main's newest lock."""

    root: str = ""
    project: str = ""
    run: str = ""
    folder: str | None = None
    lock: Lock | None = None


class _Asked:
    """Takes the first SIGTERM or Ctrl-C as the word that the trainer is done; the second one ends at once."""

    def __init__(self) -> None:
        self.done = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        from fsrun.cli import Stopped

        if self.done:
            raise Stopped(number)
        self.done = True


@contextmanager
def _asked(finish: bool) -> Iterator[_Asked]:
    """Without --finish a signal means that this process has to go, and ends the session as that."""
    asked = _Asked()
    before = {}
    try:
        for number in (signal.SIGTERM, signal.SIGINT) if finish else ():
            before[number] = signal.signal(number, asked)
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def watch(run: str, root: str | None, plan: Plan) -> int:
    """Join or create the run and hand over until the watch is over; the exit code of the command."""
    from fsrun.run.outside import OutsideQueue
    from fsrun.run.watch import FolderWatch

    fs = LocalFileSystem()
    place = _find(fs, run, root, plan.job)
    job = plan.job or (MAIN if place.lock is None or place.lock.hands_over else SIDE_JOB)
    complaints: list[str] = []
    with (
        _asked(plan.finish) as asked,
        _open(place, job) as session,
    ):
        queue = OutsideQueue(fs, session.path, complaints.append)
        folder = FolderWatch(
            fs, os.path.abspath(plan.folder), plan.pattern, queue.unit, settle=plan.settle, ready=plan.ready,
            left_trace=queue.left_trace,
        )  # fmt: skip
        _announce(session, plan, folder)
        failed = _hand_over_all(session, queue, folder, plan, asked, complaints)
        if plan.finish:
            if not queue.finish():
                raise FsrunError("; ".join(complaints) or f"{queue.unit.root}: FINISHED could not be written")
            say("FINISHED")
        session.finish("finished")
    return 1 if failed else 0


def _open(place: _Place, job: str) -> Run:
    from fsrun.run.run import init, join

    if place.folder is not None:
        return join(place.folder, job=job, hands_over=True, ranks="alone", capture=False)
    return init(
        place.project, run_id=place.run, root=place.root, job=job, hands_over=True, ranks="alone", capture=False
    )


def _find(fs: LocalFileSystem, run: str, root: str | None, job: str | None) -> _Place:
    """The run, or where it will be: one that is not there yet is made for PROJECT/RUN or a path, not for an id."""
    from fsrun.run.create import locate, newest_lock
    from fsrun.run.locate import resolve_run

    try:
        path = resolve_run(run, root)
    except NotFoundError as error:
        text = run.rstrip("/")
        if job not in (None, MAIN):
            raise
        if "/" not in text:
            raise NotFoundError(f"{error}; to make a new run of it, write PROJECT/{run}") from None
        if text.count("/") == 1 and not text.startswith(("/", ".", "~")):
            project, _, name = text.partition("/")
            where = locate(root, project, name, os.environ, 0)
            return _Place(where.root, project, name)
        return _Place(*_split(os.path.abspath(os.path.expanduser(text))))
    return _Place(folder=path, lock=newest_lock(fs, path))


def _split(path: str) -> tuple[str, str, str]:
    parent, name = os.path.split(path)
    return os.path.split(parent)[0], os.path.basename(parent), name


def _announce(session: Run, plan: Plan, folder: FolderWatch) -> None:
    ends = []
    if session.job != MAIN:
        ends.append("the main job has finished or FINISHED stands")
    if plan.until_file is not None:
        ends.append(f"{plan.until_file} appears")
    if plan.idle is not None:
        ends.append(f"nothing has changed there for {plan.idle:g} s")
    if plan.finish or not ends:
        ends.append("SIGTERM or Ctrl-C")
    run = f"{session.project}/{session.id}"
    _tell(f"watching {folder.folder} as job {session.job} of {run}, until {', or '.join(ends)}")
    if not os.path.isdir(folder.folder):
        _tell(f"{folder.folder} is not there yet; waiting for it")


def _tell(text: str) -> None:
    click.echo(f"fsrun: {clean(text)}", err=True)


def _hand_over_all(
    session: Run, queue: OutsideQueue, folder: FolderWatch, plan: Plan, asked: _Asked, complaints: list[str]
) -> bool:
    """Hand over what appears until the watch is over; whether something could not be."""
    tries: Counter[str] = Counter()
    for path in _ready(session, queue, folder, plan, asked):
        tries[path] += 1
        if hand_over(queue, path, None, None, complaints):
            tries[path] = 0
        if tries[path] in (0, _TRIES):
            folder.took(path)
    for name in folder.unready:
        _tell(f"{name} is not handed over: it holds no {plan.ready}")
    return any(count >= _TRIES for count in tries.values())


def hand_over(queue: OutsideQueue, path: str, step: int | None, name: str | None, complaints: list[str]) -> bool:
    """Hand one over and say its name; False, with the reason on stderr, where that failed."""
    from fsrun.cli.busy import busy

    with busy(f"handing over {path}"):
        entry = queue.enqueue(path, step=step, name=name)
    for complaint in complaints:
        _tell(complaint)
    complaints.clear()
    if entry is None:
        return False
    say(clean(entry))
    return True


def _is_there(fs: FileSystem, path: str) -> bool:
    """Whether a file is in a fresh listing: a look at a name that is not there yet may be remembered by this host."""
    folder, name = os.path.split(os.path.abspath(path))
    try:
        return name in fs.names(folder)
    except OSError:
        return False


def _ready(session: Run, queue: OutsideQueue, folder: FolderWatch, plan: Plan, asked: _Asked) -> Iterator[str]:
    """Yield what is ready. Whether the watch is over is asked before each look, so that nothing finished is left."""
    ended: float | None = None
    looked_after_end = 0
    while True:
        over = asked.done or (plan.until_file is not None and _is_there(queue.fs, plan.until_file))
        if session.job != MAIN:
            state = queue.main_state()
            ended = None if state.status == "running" else time.monotonic() if ended is None else ended
            over = over or queue.is_finished() or state.status == "finished"
            over = over or (ended is not None and time.monotonic() - ended >= plan.linger)
        over = over or (plan.idle is not None and folder.still_for >= plan.idle)
        looked_after_end = looked_after_end + 1 if over else 0
        if not session.active:
            raise HeldError(f"{session.path}: job {session.job!r} was taken over by another process")
        ready = folder.look()
        for name in folder.grown:
            _tell(
                f"WARNING: {name} was written on after it had been handed over, so what was handed over is not whole. "
                "It is handed over once more when it stands still; give --ready, or a longer --settle"
            )
        yield from ready
        if looked_after_end >= 2 and not folder.settling:
            return
        time.sleep(plan.poll)
