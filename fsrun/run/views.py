"""``run.json`` and ``jobs/<job>.json``: what the chain says of a job, written out for people.

Does: builds and publishes the view of a session. A view decides nothing: programs read the chain.
Leaves to others: when it is written (``run``; ``inspect`` reads the chain).

protocol.md: 4 (views), 6 (the view).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fsrun.core import codec, layout
from fsrun.core.records import PROTOCOL
from fsrun.disk.store import Store


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
