"""Checks of what a log says line by line: its tags, and the lines of outcomes (protocol.md 5.9, 6.8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from fsrun.core import layout
from fsrun.core.records import Outcome
from fsrun.core.scalars import Source
from fsrun.core.values import check_tag, printable
from fsrun.disk.logs import load_line, read_pieces
from fsrun.run.check.finding import Picture

_MOST = 20
"""Findings of one kind in one log that are named one by one."""


def check_tagged(
    picture: Picture,
    source: Source,
    limit: int,
    tags: set[str],
    keys: set[str],
    outcomes: Mapping[str, Mapping[int, Outcome]],
) -> None:
    """Name the tags that no writer may use, which readers take as they are, and the outcomes that are another's.

    The lines of an outcome are those of whose outcome ``done`` stands, and nobody else's.
    """
    bad = sorted(tag for tag in tags if check_tag(tag) is not None)[:_MOST]
    found = ((key, _problem(picture, source, key, outcomes)) for key in sorted(keys))
    wrong = dict(islice(((key, problem) for key, problem in found if problem is not None), _MOST))
    tag_lines, key_lines = _first_lines(picture, source.path, limit, set(bad), set(wrong))
    for tag in bad:
        message = f"the tag {printable(tag)!r} cannot be one: {check_tag(tag)}"
        remedy = "its writer is at fault; readers show it as it is"
        picture.report("warning", source.path, "6.8", message, remedy, line=tag_lines.get(tag))
    for key, problem in wrong.items():
        message = f"logs the outcome {key!r:.220}, but {problem}"
        remedy = "whoever wrote it does not follow protocol.md 5.9"
        picture.report("error", source.path, "5.9", message, remedy, line=key_lines.get(key))


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


def _first_lines(
    picture: Picture, path: str, limit: int, tags: set[str], keys: set[str]
) -> tuple[dict[str, int], dict[str, int]]:
    """Numbers of the first lines that hold these tags, and these outcomes: one pass for all, no further than needed."""
    tag_lines: dict[str, int] = {}
    key_lines: dict[str, int] = {}
    for number, text in enumerate(_lines(picture, path, limit) if tags or keys else (), 1):
        try:
            record = load_line(text)
        except ValueError:
            continue
        if not isinstance(record, dict):
            continue
        for tag in tags & record.keys():
            tag_lines.setdefault(tag, number)
        if isinstance(key := record.get("entry"), str) and key in keys:
            key_lines.setdefault(key, number)
        if len(tag_lines) == len(tags) and len(key_lines) == len(keys):
            break
    return tag_lines, key_lines


def _lines(picture: Picture, path: str, limit: int) -> Iterator[bytes]:
    for number, piece in enumerate(read_pieces(picture.fs, picture.store.path(path), 0, limit)):
        yield from (piece if number else piece.removeprefix(b"\xef\xbb\xbf")).split(b"\n")[:-1]
