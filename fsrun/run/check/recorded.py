"""Checks of media, tables and artifacts: index lines, and the files that they name (protocol.md 6.10 to 6.12)."""

from __future__ import annotations

import os

import orjson

from fsrun.core import codec, layout
from fsrun.core.errors import InvalidError
from fsrun.core.indexes import ArtifactLine, Line, paths_of, read_line
from fsrun.core.scalars import Sessions
from fsrun.disk.logs import read_pieces
from fsrun.run.chain import measure_log
from fsrun.run.check.finding import Picture

_MOST = 20
"""Faults of one index that are named one by one."""
_RULES = {layout.MEDIA: "6.10", layout.TABLES: "6.11", layout.ARTIFACTS: "6.12"}


def check_indexes(picture: Picture, held: Sessions, folders: set[str]) -> dict[str, int]:
    """Check every index and the files of every line that counts; returns the complete bytes of each index."""
    complete: dict[str, int] = {}
    for folder in layout.INDEXES:
        for name in sorted(picture.store.names(folder)) if folder in folders else ():
            parsed = layout.parse_log_name(name)
            if parsed is None or parsed[2] is not None:
                continue
            path = f"{folder}/{name}"
            if not picture.was_opened(parsed[0], parsed[1]):
                message = f"session {parsed[1]} of job {parsed[0]} was never opened"
                picture.report("error", path, "4", message, "its lock is gone; without it no reader knows the job")
            try:
                complete[path] = measure_log(picture.fs, picture.store.path(path)).size
            except OSError as error:
                picture.report("error", path, "8.2", f"cannot be read: {error.strerror}", "make it readable")
                continue
            fence = held.fences.get((parsed[0], parsed[1]))
            limit = complete[path] if fence is None else min(complete[path], fence.get(path, 0))
            _check_lines(picture, folder, path, limit)
    return complete


def _check_lines(picture: Picture, folder: str, path: str, limit: int) -> None:
    found = 0
    pieces = read_pieces(picture.fs, picture.store.path(path), 0, limit)
    for number, text in enumerate((text for piece in pieces for text in piece.split(b"\n")[:-1]), 1):
        try:
            problem = _problem(picture, read_line(folder, codec.loads(text)))
        except (InvalidError, orjson.JSONDecodeError) as error:
            problem = f"{error}; the line does not count"
        if problem is None:
            continue
        found += 1
        if found <= _MOST:
            remedy = "its writer is at fault, or files were removed or changed: restore them from a copy"
            picture.report("error", path, _RULES[folder], problem, remedy, line=number)
    if found > _MOST:
        picture.report("error", path, _RULES[folder], f"{found - _MOST} more faulty lines", "as above")


def _problem(picture: Picture, line: Line) -> str | None:
    """What is wrong with the files of a line."""
    root = os.path.realpath(picture.path)
    for path in paths_of(line):
        if not os.path.realpath(picture.store.path(path)).startswith(root + "/"):
            return f"{path!r:.200} leads out of the run folder"
        try:
            size = picture.fs.stat(picture.store.path(path)).size
        except OSError as error:
            return f"{path!r:.200} is not there ({error.strerror})"
        expected = getattr(line, "size", 0)
        if not isinstance(line, ArtifactLine) and size != expected:
            return f"{path!r:.200} has {size} bytes, not {expected}"
    return _changed(picture, line) if isinstance(line, ArtifactLine) and not line.reference else None


def _changed(picture: Picture, line: ArtifactLine) -> str | None:
    """Whether files of an artifact have other sizes than its manifest says. Digests are left to ``sha256sum -c``."""
    record = picture.store.record(line.manifest)
    files = record.get("files") if record is not None else None
    if not isinstance(files, list):
        return f"{line.manifest!r:.200} is no manifest"
    for file in files:
        name, size = (file.get("name"), file.get("size")) if isinstance(file, dict) else (None, None)
        if not isinstance(name, str) or not layout.is_inside(name):
            return f"{line.manifest!r:.200} names {name!r:.200}"
        try:
            there = picture.fs.stat(picture.store.path(line.path, name)).size
        except OSError as error:
            return f"{line.path}/{name} is not there ({error.strerror})"
        if there != size:
            return f"{line.path}/{name} has {there} bytes, not {size}: it was rewritten in place"
    return None
