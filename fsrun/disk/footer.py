"""What a ``data.parquet`` says it was made of (protocol.md 6.9), read without the Parquet library.

Does: finds one entry of the key-value metadata in the footer of a Parquet file (Thrift, compact protocol; the rest is
passed over). A trainer that resumes needs no more of the file, and is spared tens of megabytes and much of a second.
Leaves to others: rows (``segments``), what follows from it (``run.chain``, ``run.load``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

import orjson

from fsrun.core import codec, layout
from fsrun.core.records import MAJOR, PROTOCOL, major
from fsrun.core.scalars import is_made_of
from fsrun.disk.fs import NO_FILE, FileSystem, is_file

KEY = b"fsrun"
_MAGIC = b"PAR1"
_KEY_VALUES = 5
"""Number of the field of Parquet's FileMetaData that lists keys and values."""
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_LARGEST = 256 << 20
"""Bytes of a footer above which it is not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """The metadata of a data.parquet."""

    sources: dict[str, int] = field(default_factory=dict)
    """Bytes consumed of each log, by path in the run folder."""
    outcomes: dict[str, tuple[int | None, int]] = field(default_factory=dict)
    """The ``done`` outcomes it took -> (main session that handed over, order)."""
    others: frozenset[str] = frozenset()
    """Outcomes that are not ``done``: they have no points and need not be opened again."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Lines and values that were skipped as faulty, by path."""
    plain: bool = False
    """No row replaces or voids another: the rows as they are count."""
    tokens: dict[str, str] = field(default_factory=dict)
    """``<job>.<session>`` -> token of its lock: which run it was made of."""

    def encode(self) -> bytes:
        """Bytes of the metadata."""
        return orjson.dumps(
            {
                "protocol": PROTOCOL,
                "sources": self.sources,
                "outcomes": sorted(self.outcomes),
                "handed_over": {key: list(self.outcomes[key]) for key in sorted(self.outcomes)},
                "others": sorted(self.others),
                "skipped": self.skipped,
                "plain": self.plain,
                "tokens": self.tokens,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Consumed | None:
        """Read the metadata; None where it is of another major version or is no such thing."""
        try:
            value = codec.loads(data)
        except orjson.JSONDecodeError:
            return None
        if not isinstance(value, dict) or major(value.get("protocol")) != MAJOR or value.get("must_understand"):
            return None
        sources = value.get("sources")
        if not _is_sizes(sources):
            return None
        handed_over = value.get("handed_over")
        outcomes = value.get("outcomes")
        if not isinstance(handed_over, dict) or not isinstance(outcomes, list):
            # Another program's file that does not say who handed over: only what has none can be used.
            if outcomes:
                return None
            handed_over = {}
        try:
            taken = {str(key): (session, int(order)) for key, (session, order) in handed_over.items()}
        except (TypeError, ValueError):
            return None
        others, skipped, tokens = value.get("others"), value.get("skipped"), value.get("tokens")
        return cls(
            sources=sources,
            outcomes=taken,
            others=frozenset(map(str, others)) if isinstance(others, list) else frozenset(),
            skipped=skipped if _is_sizes(skipped) else {},
            plain=value.get("plain") is True,
            tokens={key: str(token) for key, token in tokens.items()} if isinstance(tokens, dict) else {},
        )


def _is_sizes(value: object) -> TypeGuard[dict[str, int]]:
    return isinstance(value, dict) and all(type(n) is int and n >= 0 for n in value.values())


def consumed_by(fs: FileSystem, run_dir: str, tokens: Mapping[str, str]) -> Mapping[str, int]:
    """Bytes that the data.parquet of a run has consumed of each log; empty where there is none to be read.

    ``tokens``: of locks of the run (``core.scalars.Sessions``); a file that was made of another run is none.
    """
    if layout.DATA not in fs.names(run_dir):
        return {}
    try:
        descriptor = fs.open(f"{run_dir}/{layout.DATA}")
    except OSError as error:
        if not isinstance(error, FileNotFoundError) and error.errno not in NO_FILE:
            raise
        return {}
    try:
        footer = _read_footer(descriptor) if is_file(descriptor) else None
    finally:
        os.close(descriptor)
    consumed = None if footer is None else Consumed.decode(find_value(footer, KEY))
    if consumed is None or not is_made_of(consumed.tokens, consumed.sources, tokens):
        return {}
    return consumed.sources


def _read_footer(descriptor: int) -> bytes | None:
    """The footer of an open Parquet file; None where it is none."""
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, 8, max(0, size - 8))
    length = int.from_bytes(tail[:4], "little")
    if len(tail) < 8 or tail[4:] != _MAGIC or not 0 < length <= min(size - 8, _LARGEST):
        return None
    footer = b""
    while len(footer) < length:
        piece = os.pread(descriptor, length - len(footer), size - 8 - length + len(footer))
        if not piece:
            return None
        footer += piece
    return footer


def find_value(footer: bytes, key: bytes) -> bytes:
    """The value of a key in the metadata of a footer; empty where there is none, or the footer is damaged."""
    reader = _Reader(footer)
    try:
        for number, kind in reader.fields():
            if number == _KEY_VALUES and kind == _LIST:
                count, _ = reader.list_header()
                for _ in range(count):
                    pair = reader.texts()
                    if pair.get(1) == key:
                        return pair.get(2, b"")
                return b""
            reader.skip(kind)
    except (IndexError, ValueError, RecursionError):
        pass
    return b""


class _Reader:
    """Goes through a struct of Thrift's compact protocol. Raises ``IndexError`` or ``ValueError`` where it is none."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Number and type of each field of a struct; the caller reads or skips its value before the next."""
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            yield number, head & 15

    def texts(self) -> dict[int, bytes]:
        """A struct's texts by the number of their field."""
        found = {}
        for number, kind in self.fields():
            if kind == _BINARY:
                found[number] = self.binary()
            else:
                self.skip(kind)
        return found

    def list_header(self) -> tuple[int, int]:
        """Length and type of a list or set."""
        head = self._byte()
        return (self._varint() if head >> 4 == 15 else head >> 4), head & 15

    def binary(self) -> bytes:
        """A text or bytes."""
        size = self._varint()
        data = self._data[self._at : self._at + size]
        if len(data) < size:
            raise IndexError(size)
        self._at += size
        return data

    def skip(self, kind: int) -> None:
        """Pass over a value."""
        if kind in (_TRUE, _FALSE):
            return
        if kind == _BYTE:
            self._at += 1
        elif kind < _DOUBLE:
            self._varint()
        elif kind == _DOUBLE:
            self._at += 8
        elif kind == _BINARY:
            self.binary()
        elif kind in (_LIST, _SET):
            self._skip_list()
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        elif kind == _MAP and not self._byte():
            return  # an empty one; Parquet has no other
        else:
            raise ValueError(kind)

    def _skip_list(self) -> None:
        count, kind = self.list_header()
        if count > len(self._data):
            raise ValueError(count)
        for _ in range(count):
            if kind in (_TRUE, _FALSE):  # a byte each inside a list
                self._at += 1
            else:
                self.skip(kind)

    def _byte(self) -> int:
        value = self._data[self._at]
        self._at += 1
        return value

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 70:
                raise ValueError("no integer")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
