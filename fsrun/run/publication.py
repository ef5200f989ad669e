"""A checkpoint on its way into the queue: its name reserved, then what is staged published (protocol.md 5.1).

Each step may be tried again after an error. Leaves to others: what is staged (``staging``), threads, when a step is
tried again and what is said (``handover``).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fsrun.core import layout, order
from fsrun.core.records import Meta, rfc3339
from fsrun.disk.clock import Clock
from fsrun.disk.store import NO_LINKS, Store, is_same
from fsrun.run import staging
from fsrun.run.latch import Latch
from fsrun.run.moves import Held
from fsrun.run.places import reserve, used_names

_IN_THE_WAY = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR})


@dataclass
class Job:
    """One thing to do, in the order of the calls, and how far it is."""

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
    tries: int = 0
    """How often it has failed since the run began to end, or since it was begun."""
    due: float = 0.0
    """When it is tried again, on the monotonic clock."""
    after: Callable[[], object] | None = None
    """Called when it is done, whatever became of it, and before that counts."""
    answered: Latch = field(default_factory=Latch)
    ended: Latch = field(default_factory=Latch)


class Publication:
    """Brings jobs into ``queue/`` of a unit."""

    def __init__(self, session: Held, unit: Store, clock: Clock) -> None:
        self._session = session
        self._unit = unit
        self._clock = clock

    def reserve(self, job: Job, entry: str) -> None:
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
        job.name = reserve(self._unit, self._session.store, meta, again=job.tries > 0)

    def publish(self, job: Job) -> None:
        """Give what is staged the name that was reserved for it, or the next where a plain writer's file has that."""
        assert job.staged is not None
        assert job.name is not None
        fs, staged = self._unit.fs, job.staged
        if not job.published:
            for folder in reversed(staged.folders):
                fs.sync_folder(folder)
            while not (self._link_in(staged.temp, job.name) if staged.kind == "file" else self._rename_in(job)):
                name = job.name
                with suppress(OSError):
                    fs.unlink(self._unit.path(layout.META, layout.meta_name(name)))
                self.reserve(job, order.next_use(name, used_names(self._unit, self._session.store) | {name}))
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
            if not is_same(fs, temp, target):
                if isinstance(error, FileExistsError):
                    return False
                raise
        with suppress(OSError):
            fs.unlink(temp)
        return True

    def _rename_in(self, job: Job) -> bool:
        assert job.staged is not None
        temp = job.staged.temp.removeprefix(f"{self._unit.root}/")
        try:
            if self._unit.move(temp, f"{layout.QUEUE}/{job.name}"):
                return True
        except OSError as error:
            if error.errno in _IN_THE_WAY:
                return False
            raise
        if temp.rpartition("/")[2] in self._unit.fs.names(self._unit.path(layout.QUEUE)):
            raise FileNotFoundError(errno.ENOENT, "the queue was not there", job.staged.temp)
        raise ValueError("somebody removed it on its way into the queue")


def is_gone(unit: Store) -> bool:
    """Whether the queue of a unit is not there: nothing can be handed over."""
    try:
        unit.fs.names(unit.path(layout.QUEUE))
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
