"""Bytes of scalar lines (protocol.md 8, "Scalar lines"): one JSON object a line, ``step`` first, then ``time``.

Does: encodes batches of points fast, says how many bytes of a log are complete. Leaves to others: what people pass as
values and tags (``values``), reading lines (``disk.logs``), which of them count (``scalars``), files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from fsrun.core.codec import to_word
from fsrun.core.values import as_number


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
