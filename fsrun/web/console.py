"""The console of a session in pieces of limited size, forward and backward, and a search in it.

Leaves to others: which file that is (``content``), colours and carriage returns (static/run).
"""

from __future__ import annotations

import codecs
import os
from typing import Any

LIMIT = 1 << 16
"""Bytes of a piece, unless more are asked for."""
MOST = 1 << 20
FOUND = 100
"""Places that one search gives; the next one goes on behind them."""
_SEARCHED = 1 << 26
"""Bytes that one search reads at most."""
_CHUNK = 1 << 20
_EXCERPT = 200
_BACK = 4096
"""So far before a place the beginning of its line is looked for."""


def piece(descriptor: int, offset: int, limit: int, before: int | None, *, ended: bool) -> dict[str, Any]:
    """At most ``limit`` bytes as text from ``offset``, or from the end where it is negative, or up to ``before``.

    Whole lines where that is possible: what is read from its end backward begins with a line. ``ended``: nothing more
    will be written, so what is no whole character at the end is none.
    """
    size = os.fstat(descriptor).st_size
    backward = before is not None or offset < 0
    if before is not None:
        end = min(before, size)
        start = max(0, end - limit)
    else:
        start = max(0, size + offset) if offset < 0 else min(offset, size)
        end = min(size, start + limit) if offset >= 0 else size
        start = max(start, end - limit) if offset < 0 else start
    data = _read(descriptor, start, end - start)
    if backward and start:
        skipped = _to_line(data)
        start, data = start + skipped, data[skipped:]
    reached = start + len(data)
    if reached < size and before is None:
        data = data[: data.rfind(b"\n") + 1] or data
    text, used = _decode(data, final=before is not None or (ended and start + len(data) >= size))
    following = start + used
    return {"size": size, "offset": start, "text": text, "next": following, "done": ended and following >= size}


def _read(descriptor: int, start: int, length: int) -> bytes:
    parts = []
    while length > 0:
        data = os.pread(descriptor, length, start)
        if not data:
            break
        parts.append(data)
        start, length = start + len(data), length - len(data)
    return b"".join(parts)


def _to_line(data: bytes) -> int:
    """Bytes before the first line that begins in there; before the first character where none does."""
    at = data.find(b"\n") + 1
    if 0 < at < len(data):
        return at
    return next((i for i, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)


def _decode(data: bytes, *, final: bool) -> tuple[str, int]:
    """Text, and the bytes that are in it: without a character that is only begun, unless there is nothing else."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final)
    return text, len(data) - len(decoder.getstate()[0])


def search(descriptor: int, wanted: str, offset: int, limit: int) -> dict[str, Any]:
    """Places of a text from ``offset`` on, by their lines; letters of ASCII are found small and large.

    ``next``: where the next search goes on; ``done``: the end was reached.
    """
    size = os.fstat(descriptor).st_size
    needle = wanted.encode("utf-8", "surrogateescape").lower()
    found: list[dict[str, Any]] = []
    start = min(max(0, offset), size)
    end = min(size, start + _SEARCHED)
    while start < end and len(found) < limit:
        data = _read(descriptor, start, min(_CHUNK + len(needle) - 1, size - start))
        if not data:
            break
        low, at, stop = data.lower(), -1, min(_CHUNK, len(data))
        while len(found) < limit and 0 <= (at := low.find(needle, at + 1)) < stop:
            found.append(_place(descriptor, start + at))
            line_end = data.find(b"\n", at)
            at = len(data) if line_end < 0 else line_end
            if len(found) == limit:
                stop = min(at + 1, stop)
        start += stop
    return {"size": size, "found": found, "next": start, "done": start >= size}


def _place(descriptor: int, at: int) -> dict[str, Any]:
    begin = max(0, at - _BACK)
    data = _read(descriptor, begin, at - begin + _EXCERPT)
    line = data.rfind(b"\n", 0, at - begin) + 1
    end = data.find(b"\n", at - begin)
    shown = data[max(line, at - begin - _EXCERPT) : len(data) if end < 0 else end]
    return {"offset": begin + line, "at": at, "text": shown.decode("utf-8", "replace")}
