"""Bytes of records (protocol.md 6): JSON that ends in a newline; NaN and the infinities as words.

Scalar lines, which must be fast, have a module of their own (``lines``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import orjson

WORDS: dict[str, float] = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_word(value: float) -> float | str:
    """Return a float as JSON can hold it: itself where finite, else its word."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _plain(value: object) -> object:
    if isinstance(value, float):
        return to_word(value)
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
        return to_word(float(value)) if abs(value) < 2**1023 else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return value


def encode_record(record: Mapping[str, object]) -> bytes:
    """Return a record's bytes: indented for people, one newline at the end. Integers past 64 bits become floats."""
    return orjson.dumps(_plain(record), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def encode_line(record: Mapping[str, object]) -> bytes:
    """Return the bytes of one index line: no inner newline, one at the end."""
    return orjson.dumps(_plain(record), option=orjson.OPT_APPEND_NEWLINE)


def decode_record(data: bytes) -> dict[str, Any] | None:
    """Read a record. None means "not yet": no newline at the end, no JSON, or no object (protocol.md 6)."""
    if not data.endswith(b"\n"):
        return None
    try:
        value = orjson.loads(data.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
