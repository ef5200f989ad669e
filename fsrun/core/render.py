r"""A console as readable text of bounded size: what a terminal would have shown, line by line, without its commands.

Does: keeps the last rows as a terminal does (carriage return, backspace, cursor movements, erasing), gives a row out
when it is done, and a row that is being rewritten (a progress bar) once in ten seconds as it stands. Colours, titles
and other commands are dropped; bytes that are no UTF-8 become ``\xff``; a line is cut at a limit. Leaves to others:
where the text goes, the clock, marks that hide or turn text (who prints it takes care of them).

protocol.md: 6.15 (console).
"""

from __future__ import annotations

import codecs
import math
import re

ROWS = 50
"""Rows that can still be reached by moving up."""
MAX_LINE = 1 << 16
"""Characters after which a line is cut."""
SNAPSHOT = 10.0
"""Seconds after which a row that is not done is given out as it stands."""
_HOLD, _HOLD_LIVE, _LIVE = 0.5, 10.0, 60.0
"""Seconds that the cursor stays below a row until that is done; the same where it moved up in the last minute."""
_FAR = 500
"""Columns that one movement goes at most."""
_PIECE = 1 << 16

_PLAIN_DELETED = bytes({*range(32), 127} - {9, 10})
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# ECMA-48: text, CSI, the start of a string (title, link, image), other escapes, single controls.
_TOKEN = re.compile(
    r"([^\x00-\x08\x0a-\x1f\x7f-\x9f]+)"
    r"|(?:\x1b\[|\x9b)([0-?]*)[ -/]*([@-~])"
    r"|(\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])"
    r"|\x1b[ -/]*([0-~])"
    r"|([\x00-\x1f\x7f-\x9f])"
)
_STRING_END = re.compile("[\x07\x18\x1a\x1b\x9c\n]")
_UNFINISHED = re.compile(r"(?:\x1b(?:\[[0-?]*)?|\x9b[0-?]*)[ -/]*\Z")
_LONGEST_SEQUENCE = 64


class _Row:
    """A row of the screen. ``shown``: what was given out of it; ``since``: when it was begun or last shown."""

    __slots__ = ("cut", "rewritten", "shown", "since", "text")

    def __init__(self) -> None:
        self.text = ""
        self.cut = 0
        self.rewritten = False
        self.shown: str | None = None
        self.since = math.inf

    def line(self) -> str:
        text = self.text.rstrip() if self.rewritten else self.text
        return f"{text} [fsrun: {self.cut} more characters]" if self.cut else text


class Renderer:
    """Turns the bytes of one console, cut anywhere, into lines. ``now`` is seconds on any clock that goes forward."""

    _row: int
    _column: int
    _low: int

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._held = ""
        self._in_string = False
        self._out: list[str] = []
        self._now = self._low_since = 0.0
        self._up_at = self._cleared_at = -math.inf
        self._begin()

    @property
    def waits(self) -> bool:
        """Whether ``settle`` may have something to give out, now or later."""
        row = self._rows[0]
        return len(self._rows) > 1 or (bool(row.text) and row.line() != row.shown)

    def feed(self, data: bytes, now: float) -> str:
        """Return the lines that ``data`` finished for good, each with its end."""
        self._now = now
        for start in range(0, len(data), _PIECE):
            self._feed_piece(data[start : start + _PIECE])
        return self._take()

    def settle(self, now: float) -> str:
        """Return what is done since the cursor went on, and what has stood unfinished for long; call it twice a second.

        A row is done once the cursor stayed below it for half a second, or for ten where rows are being rewritten.
        """
        self._now = now
        if now - self._low_since >= (_HOLD_LIVE if self._is_live else _HOLD):
            self._commit(self._low)
            self._low, self._low_since = self._row, now
        for row in self._rows:
            if now - row.since >= SNAPSHOT:
                line = row.line()
                if line.strip() and line != row.shown:
                    self._out.append(line + "\n")
                    row.shown = line
                row.since = now
        return self._take()

    def give_way(self, now: float) -> str:
        """Return the lines above the cursor, unless rows are being rewritten: another console has the next word."""
        self._now = now
        if not self._is_live:
            self._commit(self._row)
        return self._take()

    @property
    def _is_live(self) -> bool:
        return self._now - self._up_at < _LIVE

    def end(self) -> str:
        """Return all that is left, as lines; what is fed next starts anew."""
        self._held, self._in_string = "", False
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        self._write(rest)
        self._commit_all()
        return self._take()

    def _take(self) -> str:
        text = "".join(self._out)
        self._out.clear()
        return text

    def _feed_piece(self, data: bytes) -> None:
        text, plain = "", False
        if not (self._held or self._in_string or self._decoder.getstate()[0]) and data.isascii():
            plain = len(data.translate(None, _PLAIN_DELETED)) == len(data)
            text = data.decode("ascii")
        else:
            text = self._held + self._decoder.decode(data)
            self._held = ""
            plain = not self._in_string and not _CONTROL.search(text)
        if plain and self._row == len(self._rows) - 1 and self._column == len(self._rows[-1].text):
            self._append(text)
        else:
            self._play(text)

    def _append(self, text: str) -> None:
        """Text without commands at the end of the last row: most of what programs print."""
        first, end, rest = text.partition("\n")
        self._write(first)
        if not end:
            return
        self._new_line()
        if rest.count("\n") > ROWS:
            cut = len(rest)
            for _ in range(ROWS):
                cut = rest.rfind("\n", 0, cut)
            self._commit(len(self._rows) - 1)
            self._out.append(rest[: cut + 1])
            rest = rest[cut + 1 :]
        *lines, last = rest.split("\n")
        for line in lines:
            self._write(line)
            self._new_line()
        self._write(last)

    def _play(self, text: str) -> None:
        unfinished = _UNFINISHED.search(text, max(0, len(text) - _LONGEST_SEQUENCE))
        if unfinished:
            text, self._held = text[: unfinished.start()], unfinished.group()
        at = 0
        while at < len(text):
            if self._in_string:
                end = _STRING_END.search(text, at)
                if end is None:
                    return
                self._in_string = False
                at = end.start() if end.group() in "\x1b\n" else end.end()
                continue
            found = _TOKEN.match(text, at)
            assert found is not None  # each character alone is one
            at = found.end()
            plain, numbers, command, string, escape, control = found.groups()
            if plain:
                self._write(plain)
            elif control:
                self._obey_control(control)
            elif command:
                self._obey(command, numbers)
            elif string:
                self._in_string = True
            else:
                self._obey_escape(escape)

    def _obey_control(self, control: str) -> None:
        if control == "\n":
            self._new_line()
        elif control == "\r":
            self._column = 0
        elif control == "\b":
            self._column = max(0, self._column - 1)

    def _obey_escape(self, escape: str) -> None:
        if escape == "M":
            self._move(-1)
        elif escape in "DE":
            self._new_line()
        elif escape == "c":
            self._clear()

    def _obey(self, command: str, numbers: str) -> None:
        """Obey a control sequence; ``numbers`` are its parameters as text."""
        given = [int(part[:6]) if part.isdecimal() else 0 for part in numbers.split(";")]
        count = max(1, given[0])
        if command in "AF":
            self._move(-count)
        elif command in "BE":
            self._move(count)
        elif command in "Hf":
            self._move(-len(self._rows))
            self._move(count - 1)
        elif command == "C":
            self._column += min(count, _FAR)
        elif command == "D":
            self._column = max(0, self._column - count)
        elif command == "J":
            self._erase_below(given[0])
        elif command in "KP@X":
            self._edit(command, given[0])
        if command in "EF":
            self._column = 0
        elif command in "GHf":
            self._column = min(max(1, given[-1]), _FAR) - 1 if command == "G" or len(given) > 1 else 0

    def _edit(self, command: str, count: int) -> None:
        """Erase (the rest, the beginning, all), delete, insert or blank characters of the row."""
        row, at = self._rows[self._row], self._column
        row.rewritten = True
        before, after, some = row.text[:at], row.text[at:], min(max(1, count), _FAR)
        if command == "K":
            row.text = {0: before, 1: " " * len(before) + after}.get(count, "")
        elif command == "P":
            row.text = before + after[some:]
        elif command == "@":
            row.text = (before + " " * some * bool(after) + after)[:MAX_LINE]
        else:
            row.text = before + " " * min(some, len(after)) + after[some:]

    def _erase_below(self, mode: int) -> None:
        if mode == 2:
            self._clear()
        elif mode == 0:
            self._edit("K", 0)
            for row in self._rows[self._row + 1 :]:
                row.text, row.rewritten = "", True

    def _begin(self) -> None:
        """Nothing stands on the screen."""
        self._rows = [_Row()]
        self._row = self._column = self._low = 0

    def _clear(self) -> None:
        """The screen is cleared. What stood there is given out, but not from programs that clear all the time."""
        if self._now - self._cleared_at >= SNAPSHOT:
            self._cleared_at = self._now
            self._commit_all()
        self._begin()

    def _move(self, count: int) -> None:
        """Move up or down; up at most to the first row that is left."""
        if count < 0:
            self._row = max(0, self._row + count)
            self._low, self._up_at = min(self._low, self._row), self._now
        else:
            self._row = min(ROWS - 1, self._row + count)
            while len(self._rows) <= self._row:
                self._rows.append(_Row())

    def _write(self, text: str) -> None:
        row, at = self._rows[self._row], self._column
        if not text:
            return
        if at >= MAX_LINE:
            row.cut += len(text)
            return
        if row.since == math.inf:
            row.since = self._now
        if at == len(row.text):
            row.text += text
        else:
            row.rewritten = True
            row.cut = 0
            row.text = row.text[:at].ljust(at) + text + row.text[at + len(text) :]
        self._column = at + len(text)
        if len(row.text) > MAX_LINE:
            row.cut += len(row.text) - MAX_LINE
            row.text = row.text[:MAX_LINE]
            self._column = min(self._column, MAX_LINE)

    def _new_line(self) -> None:
        self._row += 1
        self._column = 0
        if self._row == len(self._rows):
            self._rows.append(_Row())
            if len(self._rows) > ROWS:
                self._commit(1)

    def _commit_all(self) -> None:
        while self._rows and not self._rows[-1].text.strip():
            self._rows.pop()
        self._commit(len(self._rows))
        self._begin()

    def _commit(self, count: int) -> None:
        """Give out the first rows and forget them; not what was wiped, nor what was shown as it is."""
        for row in self._rows[:count]:
            line = row.line()
            if line != row.shown and (line or not row.rewritten):
                self._out.append(line + "\n")
        del self._rows[:count]
        self._row -= count
        self._low = max(0, self._low - count)
