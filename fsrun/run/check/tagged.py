"""Checks of what a log says line by line: its tags, and the lines of outcomes (protocol.md 5.9, 6.8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from fsrun.core import codec, layout
from fsrun.core.records import Outcome
from fsrun.core.scalars import Source
from fsrun.core.values import check_tag, printable
from fsrun.disk.logs import read_pieces
from fsrun.run.check.finding import Picture

_MOST = 20
"""Findings of one kind in one log that are named one by one."""


def check_tags(picture: Picture, path: str, limit: int, tags: set[str]) -> None:
    """Name the tags that no writer may use; readers take them as they are."""
    for tag in sorted(tag for tag in tags if check_tag(tag) is not None)[:_MOST]:
        line = _first_line(picture, path, limit, lambda record, tag=tag: tag in record)  # type: ignore[misc]
        message = f"the tag {printable(tag)!r} cannot be one: {check_tag(tag)}"
        picture.report("warning", path, "6.8", message, "its writer is at fault; readers show it as it is", line=line)


def check_lined(
    picture: Picture, source: Source, limit: int, keys: set[str], outcomes: Mapping[str, Mapping[int, Outcome]]
) -> None:
    """Whether the lines of outcomes are those of whose outcome ``done`` stands, and nobody else's."""
    found = ((key, _problem(picture, source, key, outcomes)) for key in sorted(keys))
    for key, problem in islice(((key, problem) for key, problem in found if problem is not None), _MOST):
        line = _first_line(picture, source.path, limit, lambda record, key=key: record.get("entry") == key)  # type: ignore[misc]
        message = f"logs the outcome {key!r:.220}, but {problem}"
        remedy = "whoever wrote it does not follow protocol.md 5.9"
        picture.report("error", source.path, "5.9", message, remedy, line=line)


def _problem(picture: Picture, source: Source, key: str, outcomes: Mapping[str, Mapping[int, Outcome]]) -> str | None:
    """Why a log may hold no line of this outcome; None where it may, or no such outcome can be read."""
    named = layout.parse_outcome_key(key)
    outcome = outcomes.get(named[0], {}).get(named[1]) if named is not None else None
    if outcome is None:
        return None
    if outcome.state != "done":
        return f"its outcome is {outcome.state}"
    if outcome.job != source.job or not _goes_on(picture, outcome, source.session):
        return f"its outcome is that of session {outcome.session} of job {outcome.job!r:.60}"
    return None


def _goes_on(picture: Picture, outcome: Outcome, session: int) -> bool:
    """Whether a session is that of an outcome, or goes on from it by ``continues``."""
    while session > outcome.session and (lock := picture.locks.get((outcome.job, session))) and lock.continues:
        session -= 1
    return session == outcome.session


def _first_line(picture: Picture, path: str, limit: int, wanted: Callable[[dict[str, Any]], bool]) -> int | None:
    """Number of the first line that is wanted."""
    number = 0
    for piece in read_pieces(picture.fs, picture.store.path(path), 0, limit):
        for text in piece.split(b"\n")[:-1]:
            number += 1
            try:
                record = codec.loads(text)
            except ValueError:
                continue
            if isinstance(record, dict) and wanted(record):
                return number
    return None
