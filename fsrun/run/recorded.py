"""What a run recorded besides scalars, read back: media, tables, artifacts (protocol.md 6.10 to 6.12, 8).

Does: reads the lines of the indexes that count (fences, resumed trainers), and finds their files; a path that leaves
the run folder, by itself or by a link, is refused and named among the problems. Reads only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from fsrun.core import codec, layout
from fsrun.core.errors import InvalidError
from fsrun.core.indexes import ArtifactLine, Line, MediaLine, TableLine, read_line, standing
from fsrun.core.scalars import Sessions, read_sessions
from fsrun.disk.fs import require_file
from fsrun.disk.store import read_record
from fsrun.run.digests import parse_sums
from fsrun.run.load import list_folder

if TYPE_CHECKING:
    import pyarrow

    from fsrun.disk.fs import FileSystem
    from fsrun.run.load import Loader

_LOOKS = 8
_SUMS = 2
"""Digests take so many times the bytes of their manifest at most: a line of it has some 20 bytes less, name aside."""
_OF_MEDIA = ("step", "time", "kind", "tag", "type", "size", "text", "caption", "info")


@dataclass(frozen=True, slots=True)
class Medium:
    """An image, audio, video or text, as ``kind`` says. ``path``: absolute; None for a short text."""

    job: str
    session: int
    step: int
    time: float
    kind: str
    tag: str
    type: str
    path: str | None
    size: int
    text: str | None
    caption: str | None
    info: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TableFile:
    """A table at a step. ``path``: its Parquet file. ``columns``: name, type, and whether it holds JSON texts."""

    job: str
    session: int
    step: int
    time: float
    name: str
    path: str
    size: int
    rows: int
    columns: list[dict[str, Any]]
    _fs: FileSystem = field(repr=False, compare=False)

    def read(self) -> pyarrow.Table:
        """The table as Arrow, which ``to_pandas()`` makes a DataFrame. Raises ``OSError``, ``ArrowException``."""
        import pyarrow.parquet as pq

        # Opened here, since by its path Arrow would wait for the writer of a pipe, and read a folder as one table.
        descriptor = self._fs.open(self.path)
        with os.fdopen(descriptor, "rb", closefd=True) as file:
            require_file(descriptor, self.path)
            return pq.read_table(file)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A version of an artifact. ``path``: absolute, of its folder, or of what is referred to, which may be gone."""

    job: str
    session: int
    step: int | None
    time: float
    name: str
    type: str | None
    version: int
    path: str
    reference: bool
    count: int
    size: int
    _fs: FileSystem = field(repr=False, compare=False)
    _folder: str = field(repr=False, compare=False)

    def files(self) -> dict[str, int]:
        """Its files: name -> bytes, as they were kept. Raises ``OSError``, ``InvalidError``."""
        record = read_record(self._fs, f"{self._folder}/{layout.MANIFEST}")
        files = record.get("files") if record is not None else None
        if not isinstance(files, list):
            raise InvalidError(f"{self._folder}/{layout.MANIFEST} is no manifest")
        found = ((file.get("name"), file.get("size")) for file in files if isinstance(file, dict))
        return {name: size for name, size in found if isinstance(name, str) and isinstance(size, int)}

    def digests(self) -> dict[str, str]:
        """SHA-256 of its files: name -> hexadecimal text; empty where they were not (or not yet) taken.

        Raises ``OSError``, and ``InvalidError`` where they are more than a manifest can name.
        """
        if layout.SUMS not in list_folder(self._fs, self._folder):
            return {}
        path, most = f"{self._folder}/{layout.SUMS}", _SUMS * codec.MAX_RECORD
        data = self._fs.read(path, 0, most + 1)
        if len(data) > most:
            raise InvalidError(f"{path} is longer than the digests of any artifact")
        return parse_sums(data)


def read_media(loader: Loader, *, every: bool) -> list[Medium]:
    """All media that count, by tag and step; ``every``: those too that a resumed trainer replaced."""
    lines, sessions = _read(loader, layout.MEDIA)
    found = [
        Medium(
            job=job,
            session=session,
            path=None if line.path is None else loader.path(line.path),
            **{key: getattr(line, key) for key in _OF_MEDIA},
        )
        for job, session, line in lines
        if isinstance(line, MediaLine)
    ]
    if not every:
        found = standing(found, [(item.kind, item.tag) for item in found], sessions)
    return sorted(found, key=lambda item: (item.tag, item.step))


def read_tables(loader: Loader, *, every: bool) -> list[TableFile]:
    """All tables that count, by name and step."""
    lines, sessions = _read(loader, layout.TABLES)
    found = [
        TableFile(
            job=job,
            session=session,
            path=loader.path(line.path),
            _fs=loader.fs,
            **{key: getattr(line, key) for key in ("step", "time", "name", "size", "rows", "columns")},
        )
        for job, session, line in lines
        if isinstance(line, TableLine)
    ]
    if not every:
        found = standing(found, [item.name for item in found], sessions)
    return sorted(found, key=lambda item: (item.name, item.step))


def read_artifacts(loader: Loader) -> list[Artifact]:
    """All artifacts, by name and version; nothing voids a version."""
    lines, _ = _read(loader, layout.ARTIFACTS)
    found = [
        Artifact(
            job=job,
            session=session,
            path=loader.path(line.path),
            _fs=loader.fs,
            _folder=loader.path(line.manifest.rpartition("/")[0]),
            **{k: getattr(line, k) for k in ("step", "time", "name", "type", "version", "reference", "count", "size")},
        )
        for job, session, line in lines
        if isinstance(line, ArtifactLine)
    ]
    return sorted(found, key=lambda item: (item.name, item.version))


def _read(loader: Loader, folder: str) -> tuple[list[tuple[str, int, Line]], Sessions]:
    """The lines of all indexes of a folder that count, in order; looks again where a session was opened meanwhile."""
    names = list_folder(loader.fs, loader.path(layout.JOBS))
    for left in reversed(range(_LOOKS)):
        sessions = read_sessions(loader.locks(names))
        found = list(_look(loader, folder, sessions))
        again = list_folder(loader.fs, loader.path(layout.JOBS))
        locks = [{name for name in listed if name.endswith(".lock")} for listed in (names, again)]
        if locks[0] == locks[1] or not left:
            return found, sessions
        names = again
    raise AssertionError("unreachable")


def _look(loader: Loader, folder: str, sessions: Sessions) -> Iterator[tuple[str, int, Line]]:
    root = os.path.realpath(loader.run_dir)
    parsed = filter(None, map(layout.parse_log_name, list_folder(loader.fs, loader.path(folder))))
    for job, session in sorted((job, session) for job, session, piece in parsed if piece is None):
        path = f"{folder}/{layout.scalars_name(job, session)}"
        fence = sessions.fences.get((job, session))
        number = 0
        for data in loader.lines(path, 0, None if fence is None else fence.get(path, 0)):
            for text in data.split(b"\n")[:-1]:
                number += 1
                try:
                    line = read_line(folder, codec.loads(text))
                    leaving = next((p for p in _all_paths(line) if leaves(root, p)), None)
                    if leaving is not None:
                        raise InvalidError(f"{leaving!r:.200} leads out of the run folder")
                except (InvalidError, orjson.JSONDecodeError) as error:
                    loader.problems.add(path, number, str(error))
                else:
                    yield job, session, line


def _all_paths(line: Line) -> list[str]:
    return [path for path in (getattr(line, "path", None), getattr(line, "manifest", None)) if path is not None]


def leaves(root: str, path: str) -> bool:
    """Whether a path below ``root`` (real) leads out of it by links."""
    real = os.path.realpath(f"{root}/{path}")
    return not real.startswith(root + "/")
