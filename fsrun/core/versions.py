"""Whether this version may write where a record stands (protocol.md 10); the one way to read a lock to act on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsrun.core.errors import InvalidError
from fsrun.core.records import MAJOR, PROTOCOL, Lock, major

UNDERSTOOD: frozenset[str] = frozenset()
"""What ``must_understand`` may name."""


def refusal(value: Mapping[str, Any]) -> str | None:
    """Why this version must not write to a run in which this record stands; None where it may.

    To be asked before anything else of the record is looked at: a newer protocol may use other types.
    """
    protocol, words = value.get("protocol"), value.get("must_understand", [])
    if major(protocol) == MAJOR and isinstance(words, list) and UNDERSTOOD.issuperset(map(str, words)):
        return None
    asked = f", with {words!r:.80}" if words else ""
    return (
        f"protocol {protocol!s:.20}{asked} is not one that this version of fsrun may write under ({PROTOCOL}): "
        "upgrade fsrun"
    )


def decode_lock(value: Mapping[str, Any], path: str) -> Lock:
    """Build a lock that is to be acted upon; raises ``InvalidError`` naming ``path`` where this version must not."""
    why = refusal(value)
    if why is not None:
        raise InvalidError(f"{path}: {why}")
    return Lock.from_json(value, path)
