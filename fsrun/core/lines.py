"""Bytes of scalar lines (protocol.md 8, "Scalar lines"): one JSON object a line, ``step`` first, then ``time``.

Does: encodes batches of points fast, reads lines back, says how many bytes of a log are complete. Leaves to others:
what people pass as values and tags (``values``), which lines count (``scalars``), files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from fsrun.core.codec import WORDS, to_word
from fsrun.core.values import as_number


class Point(NamedTuple):
    """One line: all values of one call. A plain tuple of this shape does as well where points are made fast."""

    step: int
    time: float
    """Seconds since 1970, UTC."""
    values: Mapping[str, int | float]
    entry: str | None
    """``X.k`` of an outcome whose scores the line repeats."""


class Problem(NamedTuple):
    """A line that does not count, where it begins, and why."""

    offset: int
    reason: str


def encode_lines(points: Sequence[tuple[int, float, Mapping[str, int | float], str | None]]) -> bytes:
    """Return the lines of ``points`` in their order, each with its newline.

    Steps are whole numbers of 64 bits, values are ``int`` or ``float`` (nothing else: a bool would be written as
    ``true``), tags are checked ones. NaN and the infinities become words, integers past 64 bits the nearest float.
    """
    if not points:
        return b""
    records = [{"step": step, "time": time, **values} for step, time, values, entry in points if entry is None]
    try:
        body = orjson.dumps(records)[1:-1]
    except orjson.JSONEncodeError:  # an integer past 64 bits
        body = b""
    # One pass of C for the whole batch, unless it holds what that pass cannot say: NaN, which orjson writes as null, or
    # an entry key; or a tag that looks like the seam of two lines.
    if len(records) < len(points) or not body or b":null" in body:
        records = [_record(point) for point in points]
        body = orjson.dumps(records)[1:-1]
    if body.count(b"},{") != len(points) - 1:
        return b"".join([orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in records])
    return body.replace(b"},{", b"}\n{") + b"\n"


def _record(point: tuple[int, float, Mapping[str, int | float], str | None]) -> dict[str, Any]:
    step, time, values, entry = point
    record: dict[str, Any] = {"step": step, "time": to_word(time)}
    for tag, value in values.items():
        number = as_number(value)
        record[tag] = to_word(number) if type(number) is float else number
    if entry is not None:
        record["entry"] = entry
    return record


def complete_prefix(data: bytes) -> int:
    """How many bytes of a log's content are whole lines: up to the first NUL, then back to the last newline."""
    hole = data.find(b"\0")
    return data.rfind(b"\n", 0, len(data) if hole < 0 else hole) + 1


def parse_lines(data: bytes) -> tuple[list[Point], list[Problem]]:
    """Read the whole lines of ``data`` (which begins at the start of a line), in their order.

    A line that is no JSON object, or has no whole ``step``, is a problem and does not count; the ones after it do.
    Keys whose value is no number and no word are ignored, empty lines too.
    """
    points: list[Point] = []
    problems: list[Problem] = []
    end = complete_prefix(data)
    body = data[:end]
    records = _parse_at_once(body)
    if records is not None:
        offset = 0
        for record in records:
            _take(record, offset, points, problems)
            if problems:  # offsets are known only line by line
                break
        else:
            return points, problems
        points, problems = [], []
    offset = 0
    for line in body.split(b"\n"):
        if line.strip():
            try:
                record = orjson.loads(line)
            except orjson.JSONDecodeError:
                problems.append(Problem(offset, "no JSON"))
            else:
                _take(record, offset, points, problems)
        offset += len(line) + 1
    return points, problems


def _parse_at_once(body: bytes) -> list[object] | None:
    """All lines in one call, or None where one of them is torn or empty."""
    try:
        records = orjson.loads(b"[" + body[:-1].replace(b"\n", b",") + b"]")
    except orjson.JSONDecodeError:
        return None
    count = body.count(b"\n")
    seams = body.count(b"}\n{") == count - 1
    return records if isinstance(records, list) and seams and len(records) == count else None


def _take(record: object, offset: int, points: list[Point], problems: list[Problem]) -> None:
    if not isinstance(record, dict):
        problems.append(Problem(offset, "no object"))
        return
    step = record.pop("step", None)
    if isinstance(step, float) and step.is_integer():
        step = int(step)
    if not isinstance(step, int) or isinstance(step, bool):
        problems.append(Problem(offset, "no whole step"))
        return
    time, entry = record.pop("time", 0.0), record.pop("entry", None)
    values: dict[str, int | float] = {}
    for tag, value in record.items():
        if isinstance(value, bool):
            continue
        if isinstance(value, int | float):
            values[tag] = value
        elif isinstance(value, str) and value in WORDS:
            values[tag] = WORDS[value]
    seconds = float(time) if isinstance(time, int | float) else 0.0
    points.append(
        Point(step, seconds if math.isfinite(seconds) else 0.0, values, entry if isinstance(entry, str) else None)
    )
