"""Bytes of records (protocol.md 6): JSON that ends in a newline; NaN and the infinities as words.

Scalar lines, which must be fast, have a module of their own (``lines``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import orjson

MAX_RECORD = 64 << 20
"""Bytes of a record at most: of a longer file, whatever its size says, no more than this is ever read."""

MAX_DEPTH = 100
"""Objects and arrays in one another, the outermost among them; what nests deeper is no JSON (protocol.md 8.2)."""

_MAX_SHOWN = 2 * MAX_DEPTH
"""Levels of what is shown: it holds records that were read, and orjson refuses some more than these."""

WORDS: dict[str, float] = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class TooLongError(ValueError):
    """A record would be longer than any reader takes."""


def to_word(value: float) -> float | str:
    """Return a float as JSON can hold it: itself where finite, else its word."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _plain(value: object, limit: int, depth: int = 0) -> object:
    if isinstance(value, float):
        return to_word(value)
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
        try:
            return float(value)
        except OverflowError:
            return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if depth == limit and isinstance(value, Mapping | list | tuple):
        return f"nested deeper than {limit} levels"
    if isinstance(value, Mapping):
        return {_plain(str(k), limit): _plain(v, limit, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, limit, depth + 1) for v in value]
    return value


def encode_record(record: Mapping[str, object]) -> bytes:
    """Return a record's bytes: indented for people, one newline at the end. Integers past 64 bits become floats.

    What nests deeper than a reader takes is cut there. Raises ``TooLongError`` for what is longer than one takes.
    """
    data = orjson.dumps(_plain(record, MAX_DEPTH), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    if len(data) > MAX_RECORD:
        raise TooLongError(f"a record has at most {MAX_RECORD >> 20} MiB, this one would have {len(data) >> 20}")
    return data


def encode_line(record: Mapping[str, object]) -> bytes:
    """Return the bytes of one index line: no inner newline, one at the end; cut where it nests too deep."""
    return orjson.dumps(_plain(record, MAX_DEPTH), option=orjson.OPT_APPEND_NEWLINE)


def encode_shown(value: object, *, indented: bool = False) -> bytes:
    """Return the JSON of what is shown and never read back as a record: records in others, of any length."""
    option = orjson.OPT_APPEND_NEWLINE | (orjson.OPT_INDENT_2 if indented else 0)
    return orjson.dumps(_plain(value, _MAX_SHOWN), option=option)


def decode_record(data: bytes) -> dict[str, Any] | None:
    """Read a record. None means "not yet": no newline at the end, no JSON, no object, or too long (protocol.md 6)."""
    if not data.endswith(b"\n") or len(data) > MAX_RECORD:
        return None
    try:
        value = loads(data.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def loads(data: bytes) -> Any:
    """Read JSON that somebody else wrote; raises ``orjson.JSONDecodeError``, also where it nests deeper than is safe.

    What compares, shows or writes a value goes down into it, and a stack ends sooner than a line of brackets.
    """
    value = orjson.loads(data)
    if nests_too_deep(data, value):
        raise orjson.JSONDecodeError("nested too deep", "", 0)
    return value


def nests_too_deep(data: bytes, value: object) -> bool:
    """Whether ``value``, read from ``data``, nests deeper than ``MAX_DEPTH``."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        inner = [inside for outer in level for inside in (outer.values() if isinstance(outer, dict) else outer)]
        level = [inside for inside in inner if isinstance(inside, dict | list)]
        if not level:
            return False
    return True
