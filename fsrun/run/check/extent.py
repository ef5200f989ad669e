"""How much of a log there is, seen in pieces: a log may be larger than memory, or say that it is (protocol.md 8.2)."""

from __future__ import annotations

import os
from dataclasses import dataclass

from fsrun.disk.fs import FileSystem, require_file
from fsrun.disk.logs import PIECE


@dataclass(frozen=True, slots=True)
class Extent:
    """What stands in a log."""

    size: int
    complete: int
    """Bytes of its whole lines, up to the first NUL."""
    lines: int
    """How many those are."""
    hole: int | None
    """Where the first NUL is."""


def measure(fs: FileSystem, path: str) -> Extent:
    """Look through a log. Raises ``OSError`` where it cannot be read, or is no file."""
    descriptor = fs.open(path)
    try:
        require_file(descriptor, path)
        at = complete = lines = 0
        while piece := os.pread(descriptor, PIECE, at):
            hole = piece.find(b"\0")
            whole = piece.rfind(b"\n", 0, len(piece) if hole < 0 else hole) + 1
            if whole:
                complete = at + whole
                lines += piece.count(b"\n", 0, whole)
            if hole >= 0:
                return Extent(os.fstat(descriptor).st_size, complete, lines, at + hole)
            at += len(piece)
        return Extent(at, complete, lines, None)
    finally:
        os.close(descriptor)


def cuts_line(fs: FileSystem, path: str, at: int) -> bool:
    """Whether a line of a log goes on over byte ``at``."""
    return at > 0 and fs.read(path, at - 1, 1) != b"\n"
