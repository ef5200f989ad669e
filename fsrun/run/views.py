"""``run.json`` and ``jobs/<job>.json``: what the chain says of a job, written out for people.

Does: builds and publishes the view of a session, and corrects one that came too late. A view decides nothing: programs
read the chain. Leaves to others: when it is written (``live``, ``closer``; ``inspect`` reads the chain).

protocol.md: 4 (views), 6 (the view).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fsrun.core import codec, layout
from fsrun.core.errors import InvalidError
from fsrun.core.records import PROTOCOL
from fsrun.core.sessions import Chain
from fsrun.disk.store import Store
from fsrun.run import chain as steps
from fsrun.run.listing import last_logged_step


@dataclass(frozen=True, slots=True)
class View:
    """The keys of a view, in the order in which they are written; times are RFC 3339 text."""

    project: str | None
    run: str | None
    name: str | None
    job: str
    session: int
    status: str
    reason: str | None
    heartbeat: str
    opened: str
    ended: str | None
    step: int | None
    holder: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    unit: Mapping[str, Any] | None = None
    """Main alone: where the hand-over unit is, if not in the run folder."""
    protocol: str = PROTOCOL

    def to_json(self) -> dict[str, Any]:
        """Return the view as plain JSON values."""
        return {"protocol": self.protocol} | {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name != "protocol"
        }


def write(store: Store, view: View) -> None:
    """Publish a view. After a crash: the old one or the new one. Raises ``OSError``."""
    folder, _, name = layout.job_view(view.job).rpartition("/")
    store.replace(folder, name, codec.encode_record(view.to_json()))


def read(store: Store, job: str) -> dict[str, Any]:
    """Read the view of a job; empty where there is none that can be read."""
    try:
        return store.record(layout.job_view(job)) or {}
    except OSError:
        return {}


def of_closed(store: Store, now: Chain) -> View:
    """The view of the highest session of a chain, which is closed, from its lock and end. Raises ``InvalidError``."""
    lock = steps.read_lock(store, now.job, now.highest)
    end = steps.read_end(store, now.job, now.highest)
    if lock is None or end is None:
        file = layout.lock_name(now.job, now.highest) if lock is None else layout.end_name(now.job, now.highest)
        raise InvalidError(f"{store.path(layout.JOBS, file)}: cannot be read, so no view can be made of it")
    return View(
        project=lock.project,
        run=lock.run,
        name=lock.name,
        job=lock.job,
        session=lock.session,
        status=end.status,
        reason=end.reason,
        heartbeat=end.ended,
        opened=lock.opened,
        ended=end.ended or None,
        step=end.step if end.step is not None else last_logged_step(store.fs, store.root, now.job, now.highest),
        holder=lock.holder,
        config=lock.config,
        summary=end.summary,
        unit=lock.unit,
    )


def correct(store: Store, job: str, session: int) -> None:
    """Look again after the view of ``session`` was written: one of a later session must not stay overwritten.

    Where that one is open its holder writes its view again, within its timeout. Raises ``OSError``.
    After a crash: the old view or the new one.
    """
    while (now := steps.look(store.fs, store.root, job)).closed and now.highest != session:
        session = now.highest
        with suppress(InvalidError):
            write(store, of_closed(store, now))
