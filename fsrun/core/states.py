"""The state machines of the protocol (protocol.md 4 and 5).

A session is opened by a lock and closed by an end. An entry is where it stands: a place, not a field. The code asks
``destination`` where an entry goes. Of a session it asks nobody: names that are put if absent and renamed hold it to
``SESSION_TABLE``, and the tests hold every step of the session model to that.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

MAX_FAILED: Final = 3
"""Attempts that may fail before an entry is given up."""
MAX_LOST: Final = 10
"""Attempts that may be lost (their evaluator died) before an entry is given up."""


class SessionState(Enum):
    """What the chain says of a session."""

    ABSENT = "absent"
    OPEN = "open"
    CLOSED = "closed"


class SessionEvent(Enum):
    """What may happen to a session, each by one atomic step."""

    LOCK = "lock put if absent"
    BEAT = "beat renamed"
    END = "end put if absent"


SESSION_TABLE: Final[dict[tuple[SessionState, SessionEvent], SessionState]] = {
    (SessionState.ABSENT, SessionEvent.LOCK): SessionState.OPEN,
    (SessionState.OPEN, SessionEvent.BEAT): SessionState.OPEN,
    (SessionState.OPEN, SessionEvent.END): SessionState.CLOSED,
}
"""Every other pair is refused. Session n+1 may be locked only when n is closed.

Stated for readers and tests: what a listing says of a session is ``sessions.Chain.state``.
"""


class Place(Enum):
    """Where an entry stands."""

    WAITING = "waiting"
    """``queue/X`` or ``retry/<k>/X``."""
    CLAIMED = "claimed"
    BEST = "best"
    FAILED = "failed"
    TRASH = "trash"


class OutcomeState(Enum):
    """How an attempt ended."""

    DONE = "done"
    FAILED = "failed"
    LOST = "lost"
    SKIPPED = "skipped"
    RETURNED = "returned"


def destination(state: OutcomeState, *, failed: int, lost: int, has_rule: bool) -> Place:
    """Where a claimed entry goes, as the outcome that stands under its attempt says.

    ``failed`` and ``lost`` count the entry's outcomes of that state, the standing one included.
    """
    if state is OutcomeState.DONE:
        return Place.BEST if has_rule else Place.TRASH
    if state is OutcomeState.SKIPPED:
        return Place.TRASH
    if state is OutcomeState.FAILED and failed >= MAX_FAILED:
        return Place.FAILED
    if state is OutcomeState.LOST and lost >= MAX_LOST:
        return Place.FAILED
    return Place.WAITING
