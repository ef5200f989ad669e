"""``init`` and ``Run``: what a training or evaluation job sees of fsrun.

Does: opens a run (``init`` may refuse, with an error that says why), and from then on lets nothing of the file system
reach the user's program. A run that is not this process's affair (another rank, a forked child, a main module that
is imported again, a job that was fenced or has ended) is the same object, quiet. Leaves to others: all work
(``live`` and the parts it holds).

protocol.md: 4 (sessions), 5 (hand-over).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex, overload

from fsrun.core import ids, layout
from fsrun.core.config import encode_config
from fsrun.core.errors import HeldError, UsageError
from fsrun.core.timing import FINISH_WAIT, LINGER, POLL_INTERVAL
from fsrun.core.values import fault_of, raise_if_meant, shown
from fsrun.disk.fs import LocalFileSystem
from fsrun.run import create, endings
from fsrun.run.create import Location
from fsrun.run.live import LiveRun, failed
from fsrun.run.notices import Notices
from fsrun.run.opening import location_of, open_live, quiet_place
from fsrun.run.recording import Recording

if TYPE_CHECKING:
    from fsrun.run.entry import Entries

_UNSET: Any = object()
_Add = Callable[[Any, Any], None]


def init(
    project: str,
    *,
    run_id: str | None = None,
    run_name: str | None = None,
    job: str = "main",
    config: object = None,
    root: str | os.PathLike[str] | None = None,
    handover: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    wait: float = 0.0,
    hands_over: bool = False,
    strict: bool = False,
    ranks: Literal["first", "all", "alone"] = "first",
    on_fenced: Literal["warn", "raise"] = "warn",
    capture: bool = True,
    console: bool = True,
    system: float | None = True,
    environment: bool = True,
) -> Run:
    """Open a run: create it, go on with it as the next session, or join it as a side job.

    ``project``, ``run_id``: free text; what is not portable as a folder name gets one that is. Without ``run_id`` a new
    one is made of the UTC time and 40 random bits. ``run_name``: for people. ``job``: ``main`` creates or resumes the
    run, any other (``eval``) joins one that exists. ``config``: anything; kept as bounded JSON without secrets.
    ``root``: where runs stand, else $FSRUN_ROOT, else ``./runs``. ``handover``: a folder for the queue and what belongs
    to it, where it is not to stand in the run folder (main alone). ``timeout``: seconds without a heartbeat after which
    the job counts as gone, 0.2 to 86,400, else $FSRUN_TIMEOUT, else 30. ``wait``: seconds that a side job waits for the
    run to appear. ``hands_over``: this side job calls ``enqueue``, so that evaluators wait for its end too. ``strict``:
    wrong input to ``add_scalar`` raises instead of warning. ``ranks``: of several ranks of one launch, ``first`` lets
    rank 0 be the job and keeps the others quiet, ``all`` makes rank k a job ``rank<k>``, ``alone`` looks at no rank.
    ``on_fenced``: whether ``add_scalar`` raises ``HeldError`` after another process took the job over.

    ``console``, ``system``, ``environment``: whether the job's output, the machine's figures (True: every 10 s; else
    the seconds between two samples, None or 0 never) and the state of code, packages and host are recorded; each is
    switched off by $FSRUN_CONSOLE=0, $FSRUN_SYSTEM=0, $FSRUN_ENVIRONMENT=0 too. ``capture=False`` or $FSRUN_CAPTURE=0
    switches all of it off.

    A session that looks open is watched until its process shows a sign of life, or for its timeout.

    Raises ``HeldError`` (another live process is this job; names host and process), ``NotFoundError`` (no run to join;
    names the root searched), ``UsageError`` (arguments, or a root that cannot be written), ``InvalidError`` (a newer
    protocol).

    After a crash: folders without a run, which the next ``init`` takes; or an open session, which expires.
    """
    arguments = {
        "project": project,
        "run_id": run_id,
        "run_name": run_name,
        "job": job,
        "config": config,
        "root": root,
        "handover": handover,
        "timeout": timeout,
        "wait": wait,
        "hands_over": hands_over,
        "strict": strict,
        "ranks": ranks,
        "on_fenced": on_fenced,
        "capture": capture,
        "console": console,
        "system": system,
        "environment": environment,
    }
    return _open(arguments)


def join(folder: str, **options: Any) -> Run:
    """As ``init`` with these keyword arguments, for a run that stands in ``folder``, whatever the folder is called.

    For the commands, which find a run by its path. The ids are those that main's newest lock tells.
    """
    where = location_of(LocalFileSystem(), folder)
    return _open({**(init.__kwdefaults__ or {}), "project": where.project, "run_id": where.run, **options}, where)


def _open(arguments: Mapping[str, Any], where: Location | None = None) -> Run:
    strict = arguments["strict"]
    quiet = quiet_place(arguments, where)
    if quiet is not None:
        return Run(quiet, arguments["job"], None, strict=strict)
    live = open_live(arguments, where=where)
    return Run(live.opened.where, live.job, live, strict=strict)


class Run(Recording):
    """An open run, or the quiet one of a process that is not the job; made by ``init``.

    Also a context manager: leaving the ``with`` block ends the run, by an exception as failed, which goes on its way.
    A copy is the run itself; where it is unpickled, in a worker process say, it is a quiet one. ``project``: as given.
    ``config``: as recorded. ``summary``: the last value of each tag, with what is put into it on top; written into the
    end of the session.
    """

    def __init__(self, where: Location, job: str, live: LiveRun | None, *, strict: bool) -> None:
        self._where = where
        self.project = where.project
        self.job = job
        self.config: dict[str, Any] = dict(live.opened.config) if live else {}
        self._live = live
        self._strict = strict
        self._active = live is not None
        self._add: _Add = live.writer.add if live else _nothing
        self.summary = Summary(live)
        if live is not None:
            live.on_quiet = self._fall_quiet

    def __repr__(self) -> str:
        state = "open" if self.active else "quiet"
        return f"<fsrun.Run {self._where.path if self._where.run else '?'!r} job {self.job!r}, {state}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the state of the run as its folder tells, or that this process is not the one."""
        from fsrun.run.card import card, read_card

        if self._where.run and self._live is not None:
            return read_card(self._where.path)
        return card(f"{self.project}/{self._where.run or '?'}", [("here", f"job {self.job!r}, quiet")], {})

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        """Return itself: a copy of a trainer that holds a run logs to the same one."""
        return self

    def __reduce__(self) -> tuple[Callable[..., Run], tuple[object, ...]]:
        """Pickle as the quiet run that it is in another process, such as a worker that loads data."""
        return _quiet, (self._where, self.job, self._strict, encode_config(self.config, secrets=False))

    @property
    def path(self) -> str:
        """The run folder. Raises ``UsageError`` as ``id``."""
        return self._where.path if self.id else ""

    @property
    def id(self) -> str:
        """The run's id as given, or made by ``init``.

        Raises ``UsageError`` where this process cannot know it: on other ranks, and where a worker process imports the
        main module again, unless ``run_id`` was given.
        """
        if not self._where.run:
            raise UsageError(
                "this process is not the one that made the run (it is another rank, or a worker), and cannot know its "
                "id and path: give init(run_id=...), the same on all, or ask the first one alone"
            )
        return self._where.run

    @property
    def active(self) -> bool:
        """Whether what is logged here is recorded: False for other ranks, forked children, fenced and ended runs."""
        return self._active

    @overload
    def add_scalar(self, values: Mapping[str, object], value: SupportsIndex | None = None, /) -> None: ...
    @overload
    def add_scalar(self, values: Mapping[str, object], *, step: SupportsIndex | None = None) -> None: ...
    @overload
    def add_scalar(self, values: str, value: object, step: SupportsIndex | None = None) -> None: ...
    def add_scalar(self, values: Any, value: Any = _UNSET, step: Any = _UNSET) -> None:
        """Log values at a step: ``add_scalar({"train/loss": 0.3}, step=12)`` or ``add_scalar("train/loss", 0.3, 12)``.

        Values: numbers, or one-element arrays and tensors of any library. ``step``: a whole number; without it the
        last one plus one. Wrong input is one warning that names it, and the rest of the call counts. Does not wait for
        the file system; a side job at under ten calls a second returns when the line is durable, 2 s at most (once,
        until the folder answers again).

        Raises nothing, but with ``strict=True`` ``UsageError`` for wrong input, and with ``on_fenced="raise"``
        ``HeldError``.

        After a crash: what was logged up to a second before it stands in the log.
        """
        try:
            if step is not _UNSET and value is _UNSET:
                self._add(values, step)
            elif isinstance(values, str):
                self._add({values: value}, None if step is _UNSET else step)
            else:
                self._add(values, None if value is _UNSET else value)
        except BaseException as error:
            raise_if_meant(error)
            if self._strict or isinstance(error, HeldError):
                raise
            self._warn(f"add_scalar: {fault_of(error)}")

    def enqueue(
        self, path: str | os.PathLike[str], step: SupportsIndex | None = None, name: str | None = None
    ) -> str | None:
        """Hand a checkpoint (file or folder) over to evaluation; returns its entry name, None where that is not known.

        ``step``: the step it belongs to, else the one in its name, else the last one logged. ``name``: the entry's
        name, else the last part of ``path``; a used one gets ``~2``. It is linked, or copied where it cannot be; its
        bytes must not change in place afterwards. Never raises; waits 1 s at most, the rest goes on in a thread, also
        where the folder takes nothing for a while. What is not taken until the run ends is named by a warning. What
        was logged before is written at once.

        After a crash: the whole entry is in the queue, or nothing of it but hidden names.
        """
        live = self._live
        if live is None or not self.active:
            return None
        try:
            return live.enqueue(os.fsdecode(path), step, name)
        except BaseException as error:  # noqa: BLE001 - a hand-over must not end a training
            raise_if_meant(error)
            live.notices.lost(f"{shown(path)} is not handed over: {fault_of(error)}")
            return None

    def finish_queue(self) -> None:
        """Say that no more is handed over: evaluators end when the queue is empty. Never raises.

        After a crash: FINISHED stands once the last hand-over is durable, or does not stand.
        """
        live = self._live
        if live is None or not self.active:
            return
        try:
            live.finish_queue()
        except Exception as error:  # noqa: BLE001 - as in enqueue
            self._warn(f"finish_queue: {fault_of(error)}")

    def entries(
        self,
        *,
        best: str | None = None,
        keep: int = 1,
        order: Literal["oldest", "newest", "latest"] = "oldest",
        max_waiting: int | None = None,
        drop: Literal["oldest", "newest"] = "oldest",
        linger: float = LINGER,
        once: bool = False,
        poll: float = POLL_INTERVAL,
    ) -> Entries:
        """Take the checkpoints that wait, one after the other: ``for entry in run.entries(best="max:eval/acc"):``.

        ``best``: ``"max:TAG"`` or ``"min:TAG"``: the ``keep`` best entries stay in best/ (0: all of them). ``order``:
        ``oldest`` first by step, ``newest`` first, or the ``latest`` alone (older ones are skipped). ``max_waiting``:
        of what waits beyond, the ``drop`` end is skipped. ``linger``: seconds to wait for a main job that failed or
        crashed to come back, 4 timeouts at least. ``once``: end when nothing waits. ``poll``: seconds between looks; a
        short one, such as 0.05, costs a few listings a look.
        Other ranks get none. ``close()`` of what is returned, or leaving a ``with`` block of it, gives back the entry
        in hand.

        Raises ``NotFoundError`` where the hand-over unit cannot be reached, ``UsageError`` for arguments that cannot
        work or a rule other than the run's, ``OSError`` where the folder stays unusable for 30 s.

        After a crash: the entry in hand counts as lost and is tried again; nothing is counted twice.
        """
        live = self._live
        if live is None or not self.active:
            from fsrun.run.entry import NoEntries

            return NoEntries()
        return live.entries(
            {
                "best": best,
                "keep": keep,
                "order": order,
                "max_waiting": max_waiting,
                "drop": drop,
                "linger": linger,
                "once": once,
                "poll": poll,
            }
        )

    def main_config(self) -> dict[str, Any]:
        """The config that main's newest session recorded; empty where it cannot be read."""
        live = self._live
        lock = None if live is None else create.newest_lock(live.fs, self.path)
        return dict(lock.config) if lock is not None else {}

    def failed_entries(self) -> list[str]:
        """Names of the checkpoints that were given up, sorted; ``evals/`` says why. Raises ``OSError``."""
        live = self._live
        return [] if live is None else sorted(filter(ids.is_entry, live.unit.names(layout.FAILED)))

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything logged is durable and snapshots are handed over, ``timeout`` seconds at most.

        Returns whether that is so. Never raises.

        After a crash: what was logged before a call that returned True stands in the log.
        """
        if self._live is None or not self.active:
            return True
        try:
            done = self._live.writer.flush(timeout)
            done = self._live.recorder.flush(FINISH_WAIT if timeout is None else timeout) and done
            return self._live.handover.drain(FINISH_WAIT if timeout is None else timeout, announced=True) and done
        except Exception as error:  # noqa: BLE001 - the user's program goes on
            self._warn(f"flush: {fault_of(error)}")
            return False

    def fail(self, reason: str | None = None) -> None:
        """Say that the run failed, whatever the exit code will be. It stays open; the end carries ``reason``."""
        if self._live is not None:
            self._live.say(failed(reason))

    def finish(self, status: str | None = None, reason: str | None = None) -> None:
        """End the run: hand-overs and log durable, the end put, and the run compacted by its last job.

        ``status``: ``finished`` (also what None means unless ``fail`` was called or a signal was noted) or ``failed``.
        Never raises; returns after 30 s at most, also where the file system hangs. A second call does nothing. May be
        called by a signal handler; one that came amid ``entries`` or the recording of media ends the run once it has
        returned.

        After a crash: the session has its end or is found expired; the logs hold every acknowledged line.
        """
        live = self._live
        if live is None:
            return
        said = str.__str__(status) if isinstance(status, str) else None
        if said == "finished":
            live.say(endings.Ending("finished", None if reason is None else endings.words_of(reason)))
        elif status is not None:
            if said != "failed":
                known = "is not known (finished or failed); the run ends as failed"
                self._warn(f"finish: status {shown(status)!r} {known}")
            live.say(failed(reason))
        self._end(endings.FINISHED)

    def _end(self, seen: endings.Ending) -> None:
        live = self._live
        if live is None:
            return
        live.await_end(live.begin_end(seen, None))
        # What is logged from now on is refused by the writer, with one warning.
        self._active = False
        try:
            self.summary.seal()
        except Exception as error:  # noqa: BLE001 - the end stands; the user's program goes on
            self._warn(f"summary: {fault_of(error)}")
            self.summary.forget()
        self._live = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(endings.of_exception(error))

    def _fall_quiet(self, message: str | None) -> None:
        """Called by the live part: fenced (with why) or a forked child."""
        live, self._active = self._live, False
        if message is not None and live is not None and live.opened.on_fenced == "raise":
            self._add = _raiser(message)
        else:
            self._add = _nothing
        if message is None:
            self._live = None
            self.summary.forget()

    def _warn(self, message: str) -> None:
        live = self._live
        (live.notices if live is not None else _NOTICES).warn(message)


class Summary(MutableMapping[str, Any]):
    """The last value of each tag, and on top of it what the user puts here; plain values after the run has ended."""

    def __init__(self, live: LiveRun | None) -> None:
        self._live = live
        self._own: dict[str, Any] = live.summary if live is not None else {}

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        """Pickle and copy as the plain values that it holds."""
        return dict, (self._all(),)

    def seal(self) -> None:
        """Keep what stands, and let go of the run."""
        self._own, self._live = self._all(), None

    def forget(self) -> None:
        """Let go of the run without asking it anything."""
        self._live = None

    def _all(self) -> dict[str, Any]:
        return {**(self._live.writer.summary() if self._live is not None else {}), **self._own}

    def __getitem__(self, key: str) -> Any:
        return self._all()[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._own[endings.text_of(key)] = value

    def __delitem__(self, key: str) -> None:
        del self._own[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return repr(self._all())


_NOTICES = Notices()


def _quiet(where: Location, job: str, strict: bool, config: dict[str, Any]) -> Run:
    run = Run(where, job, None, strict=strict)
    run.config = config
    return run


def _nothing(values: Any, step: Any) -> None:
    """What logging does where this process is not the job."""


def _raiser(message: str) -> _Add:
    def refuse(values: Any, step: Any) -> None:
        raise HeldError(message)

    return refuse
