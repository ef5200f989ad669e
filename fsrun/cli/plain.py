"""A console as readable text: what a program sent to its terminal, without the power to drive another one.

Colours, cursor movements, titles and links are dropped; of a line that was overwritten (progress bars) what stood last
is kept.
"""

from __future__ import annotations

import codecs
import re

from fsrun.cli.text import clean

MAX_LINE = 1 << 16
"""A line that has no end by then is cut here and goes on in the next one."""

# ECMA-48: string sequences (title, link, device control and the like) up to BEL or ST, CSI, two-character escapes.
_SEQUENCE = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
_ERASE = "\v"
"""Stands for the one sequence that counts: erase (the rest of) the line."""


def _sequence(found: re.Match[str]) -> str:
    return _ERASE if found.group().endswith("K") and found.group()[0] in "\x1b\x9b" else ""


def _overwrite(line: str) -> str:
    """Play carriage returns, backspaces and erasures on one line."""
    cells: list[str] = []
    at = 0
    for character in line:
        if character == "\r":
            at = 0
        elif character == "\b":
            at = max(0, at - 1)
        elif character == _ERASE:
            del cells[at:]
        else:
            cells[at : at + 1] = character
            at += 1
    return "".join(cells).rstrip()


def plain_line(line: str) -> str:
    """Return one line (without its end) as text that is safe to print."""
    line = _SEQUENCE.sub(_sequence, line).rstrip("\r")
    if "\r" in line or "\b" in line or _ERASE in line:
        line = _overwrite(line)
    return clean(line.expandtabs())


class PlainText:
    """Turns pieces of a console, cut anywhere, into finished lines."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> str:
        """Return the lines that ``data`` finished, each with its end; the rest waits for more."""
        data = data.replace(b"\0", b"")  # a terminal shows none, and a host that lost power leaves many
        *lines, self._rest = (self._rest + self._decoder.decode(data)).split("\n")
        while len(self._rest) > MAX_LINE:
            lines.append(self._rest[:MAX_LINE])
            self._rest = self._rest[MAX_LINE:]
        return "".join(plain_line(line) + "\n" for line in lines)

    def end(self) -> str:
        """Return what is left without a line end."""
        rest, self._rest = self._rest + self._decoder.decode(b"", final=True), ""
        return plain_line(rest) + "\n" if rest else ""
