"""Scalar lines read by the book, slowly: a line that is none fails the test."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

from fsrun.core.lines import complete_prefix

WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Point(NamedTuple):
    """One line, in the shape that ``encode_lines`` takes."""

    step: int
    time: float
    values: dict[str, Any]
    entry: str | None


def read_lines(data: bytes) -> list[Point]:
    """All whole lines."""
    return [_point(json.loads(line)) for line in data[: complete_prefix(data)].split(b"\n")[:-1]]


def _point(record: dict[str, Any]) -> Point:
    step, time, entry = record.pop("step"), record.pop("time"), record.pop("entry", None)
    return Point(step, time, {tag: WORDS.get(value, value) for tag, value in record.items()}, entry)
