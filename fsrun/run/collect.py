"""The files of a folder that is to be kept as an artifact: each folder once, nothing that is no file, bounded."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

MAX_FILES = 100_000
MAX_DEPTH = 40


@dataclass(frozen=True, slots=True)
class File:
    """``name``: in the artifact, with ``/``. ``source``: its path, links resolved. The rest: as it was found."""

    name: str
    source: str
    size: int
    mtime_ns: int

    def is_same(self, opened: int) -> bool:
        """Whether an open file still is what was found."""
        now = os.fstat(opened)
        return (now.st_size, now.st_mtime_ns) == (self.size, self.mtime_ns)


def collect(path: str, avoid: str) -> tuple[list[File], list[str]]:
    """Return the files below ``path`` (sorted; links followed, each folder once), and what is left out, with reasons.

    Left out: sockets, pipes and devices, links to nothing and in circles, names that are no UTF-8, what cannot be
    listed, the run folder ``avoid`` where it lies below ``path``, and all files past ``MAX_FILES``. Raises ``OSError``
    where ``path`` itself cannot be read.
    """
    facts = os.stat(path)
    if stat.S_ISREG(facts.st_mode):
        name = os.path.basename(path)
        return ([_file(name, path, facts)], []) if _is_text(name) else ([], [f"{name!r} (no UTF-8 name)"])
    if not stat.S_ISDIR(facts.st_mode):
        return [], [f"{os.path.basename(path)} (no file)"]
    found: list[File] = []
    left_out: list[str] = []
    seen = {(facts.st_dev, facts.st_ino)}
    waiting: list[tuple[str, str, int]] = [("", path, 0)]
    while waiting:
        prefix, folder, depth = waiting.pop()
        try:
            names = sorted(os.listdir(folder))
        except OSError as error:
            if not prefix:
                raise
            left_out.append(f"{prefix} ({error.strerror})")
            continue
        for name in names:
            inner, full = f"{prefix}{name}", os.path.realpath(f"{folder}/{name}")
            problem = _look(inner, full, avoid, found, seen)
            if problem == "":
                waiting.append((f"{inner}/", full, depth + 1))
                problem = None if depth < MAX_DEPTH else f"deeper than {MAX_DEPTH} folders"
                if problem:
                    waiting.pop()
            if problem:
                left_out.append(f"{inner if _is_text(inner) else repr(inner)} ({problem})")
    return sorted(found, key=lambda file: file.name), left_out


def _look(inner: str, full: str, avoid: str, found: list[File], seen: set[tuple[int, int]]) -> str | None:
    """Take a file; an empty text for a folder to enter, else why it is left out, or None."""
    if not _is_text(inner):
        return "no UTF-8 name"
    try:
        facts = os.stat(full)
    except OSError as error:
        return "a link to nothing, or in circles" if error.errno else str(error)
    if stat.S_ISDIR(facts.st_mode):
        key = facts.st_dev, facts.st_ino
        if full == avoid:
            return "the run folder"
        if key in seen:
            return "a folder that is in it already"
        seen.add(key)
        return ""
    if not stat.S_ISREG(facts.st_mode):
        return "no file"
    if len(found) >= MAX_FILES:
        return f"more than {MAX_FILES} files"
    found.append(_file(inner, full, facts))
    return None


def _file(name: str, path: str, facts: os.stat_result) -> File:
    return File(name, path, facts.st_size, facts.st_mtime_ns)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
