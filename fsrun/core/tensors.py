"""Headers of safetensors files: what they may say, and how they are written.

Does: reads and builds a header; names the types. Leaves to others: files (``adapters.weights``,
``adapters.snapshots``).

A file is the header's length (8 bytes, little endian), the header (a JSON object: each tensor's type, shape and byte
range, and ``__metadata__``, text by text), and the bytes of all tensors without a gap. Whoever loads a file whose
header lies reads beyond it, or mixes up tensors: so nothing here is taken on trust.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fsrun.core.values import printable

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "F8_E4M3": 8, "F8_E4M3FNUZ": 8, "F8_E5M2": 8, "F8_E5M2FNUZ": 8, "F8_E8M0": 8,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}  # fmt: skip
"""Bits of one element of each type."""
MAX_HEADER = 100_000_000
"""Bytes that a header has at most, as in the library of the format."""
LENGTH = 8
"""Bytes before the header, which tell its length."""
METADATA = "__metadata__"
_MAX_DIMENSIONS = 64
_ALIGN = 8


class HeaderError(ValueError):
    """A header that lies, or is none: says what is wrong, without the file's name."""


@dataclass(frozen=True, slots=True)
class Span:
    """A tensor as a header has it: type, shape, and its bytes within the data."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """A header that was read: its tensors in the order of their bytes."""

    tensors: dict[str, Span]
    metadata: dict[str, str]


def size_of(dtype: str, shape: Iterable[int]) -> int:
    """Bytes that a tensor takes. Raises ``HeaderError`` where they are no whole number, or the type is unknown."""
    if dtype not in BITS:
        raise HeaderError(f"the type {_short(dtype)} is not known")
    bits = BITS[dtype]
    for length in shape:
        bits *= length
    if bits % 8:
        raise HeaderError(f"{bits} bits of {dtype} are no whole bytes")
    return bits // 8


def header_length(first: bytes, size: int) -> int:
    """The length of the header, from a file's first 8 bytes and its size. Raises ``HeaderError``."""
    if len(first) < LENGTH:
        raise HeaderError(f"it has {size} bytes: no safetensors file, or one that was cut off")
    length = int(struct.unpack("<Q", first[:LENGTH])[0])
    if length > MAX_HEADER:
        raise HeaderError(f"its header would have {length} bytes, over the {MAX_HEADER} that are allowed")
    if LENGTH + length > size:
        raise HeaderError(f"its header has {length} bytes, the file {size}: no safetensors file, or one cut off")
    return length


def parse_header(text: bytes, size: int) -> Header:
    """Read a header of a file of ``size`` bytes; every range is checked, none overlaps, none is missing.

    Raises ``HeaderError``.
    """
    try:
        found = json.loads(text.decode(), object_pairs_hook=_once)
    except HeaderError:
        raise
    except (ValueError, RecursionError) as error:
        raise HeaderError(f"its header is no JSON: {_short(error)}") from None
    if not isinstance(found, dict):
        raise HeaderError("its header is no JSON object")
    metadata = found.pop(METADATA, None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise HeaderError("its metadata is not text by text")
    spans = {name: _span(name, value) for name, value in found.items()}
    return Header(_in_order(spans, size - LENGTH - len(text)), metadata)


def _span(name: str, value: object) -> Span:
    if not isinstance(value, dict):
        raise HeaderError(f"{_short(name)} is described by {_short(value)}")
    dtype = value.get("dtype")
    shape, offsets = _counts(value.get("shape"), _MAX_DIMENSIONS), _counts(value.get("data_offsets"), 2)
    if not isinstance(dtype, str) or shape is None or offsets is None or len(offsets) != 2:
        raise HeaderError(f"{_short(name)} lacks a type, a shape or its byte range")
    begin, end = offsets
    try:
        wanted = size_of(dtype, shape)
    except HeaderError as error:
        raise HeaderError(f"{_short(name)}: {error}") from None
    if end - begin != wanted:
        raise HeaderError(
            f"{_short(name)} is {dtype} {list(shape)}, {wanted} bytes, but has the range {_short(offsets)}"
        )
    return Span(dtype, tuple(shape), begin, end)


def _counts(value: object, most: int) -> list[int] | None:
    """A list of at most ``most`` whole numbers from 0 on; None for anything else."""
    if not isinstance(value, list) or len(value) > most or any(type(item) is not int or item < 0 for item in value):
        return None
    return value


def _in_order(spans: dict[str, Span], available: int) -> dict[str, Span]:
    ordered = dict(sorted(spans.items(), key=lambda item: (item[1].begin, item[1].end)))
    position = 0
    for name, span in ordered.items():
        if span.begin != position:
            wrong = "overlap those before it" if span.begin < position else "leave a gap before them"
            raise HeaderError(f"the bytes of {_short(name)} {wrong}")
        position = span.end
    if position != available:
        wrong = f"{position - available} bytes are missing" if position > available else "bytes are left over"
        raise HeaderError(f"its tensors have {position} bytes, it holds {available}: {wrong}")
    return ordered


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise HeaderError(f"its header names {_short(twice)} twice")
    return found


def build_header(tensors: Mapping[str, tuple[str, tuple[int, ...]]], metadata: Mapping[str, str]) -> bytes:
    """The first bytes of a file: length and header of tensors that follow each other in this order.

    Padded so that the data begins at a multiple of 8 bytes. Raises ``HeaderError`` where it would be too long.
    """
    if METADATA in tensors:
        raise HeaderError(f"a tensor cannot be named {METADATA}: the format takes that name for what is no tensor")
    header: dict[str, object] = {METADATA: dict(metadata)} if metadata else {}
    position = 0
    for name, (dtype, shape) in tensors.items():
        end = position + size_of(dtype, shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGN)
    if len(text) > MAX_HEADER:
        raise HeaderError(f"the header of {len(tensors)} tensors has {len(text)} bytes, over {MAX_HEADER}")
    return struct.pack("<Q", len(text)) + text


def _short(value: object) -> str:
    return printable(str(value), 120)
