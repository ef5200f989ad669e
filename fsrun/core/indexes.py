"""The lines of the indexes of media, tables and artifacts (protocol.md 6.10 to 6.12), and which of them count.

Does: what a line holds, checked as records are; names and texts made fit for a line; what a resumed trainer voids.
Leaves to others: writing (``run.recorder``), finding the lines and files (``run.recorded``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from fsrun.core import layout
from fsrun.core.errors import InvalidError
from fsrun.core.ids import MAIN
from fsrun.core.records import Record, _a, _flag, _int, _int_or_none, _map, _maps, _number, _text, _text_or_none
from fsrun.core.scalars import Sessions, main_cuts

MAX_NAME = 1024
"""Bytes of a tag or name at most."""
INLINE_TEXT = 8192
"""Bytes of a text that stands in its line; a longer one is a file."""

KINDS = ("image", "audio", "video", "text")

TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".svg": "image/svg+xml",
    ".pdf": "application/pdf",
    ".html": "text/html",
    ".htm": "text/html",
    ".txt": "text/plain",
    ".md": "text/markdown",
    ".json": "application/json",
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".flac": "audio/flac",
    ".ogg": "audio/ogg",
    ".m4a": "audio/mp4",
    ".mp4": "video/mp4",
    ".webm": "video/webm",
    ".mov": "video/quicktime",
    ".mkv": "video/x-matroska",
    ".avi": "video/x-msvideo",
    ".parquet": "application/vnd.apache.parquet",
}
"""Media types by suffix; anything else is ``application/octet-stream``."""


def type_of(suffix: str) -> str:
    """The media type of a file by its suffix (with the dot)."""
    return TYPES.get(suffix.lower(), "application/octet-stream")


def safe_suffix(name: str) -> str:
    """The suffix of a file name in lower case, empty where it is none of a dot and 1 to 10 ASCII letters or digits."""
    base, dot, suffix = name.rpartition(".")
    fit = base and dot and len(suffix) <= 10 and suffix.isascii() and suffix.isalnum()
    return f".{suffix.lower()}" if fit else ""


def as_name(name: object) -> str:
    """A tag or name as it stands in a line; ``ValueError`` where it is no text or too long.

    Halves of surrogate pairs, which no UTF-8 file can hold, become ``?``; everything else stays as it is.
    """
    if not isinstance(name, str):
        raise ValueError(f"a name is text, not {type(name).__name__}")
    text = name.encode("utf-8", "replace")
    if len(text) > MAX_NAME:
        raise ValueError(f"a name has at most {MAX_NAME} bytes, this one has {len(text)}")
    return text.decode()


def _path(value: object) -> bool:
    return isinstance(value, str) and layout.is_inside(value)


def _path_or_none(value: object) -> bool:
    return value is None or _path(value)


def _kind(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _count(value: object) -> bool:
    return _int(value) and value >= 0  # type: ignore[operator]


class Line(Record):
    """Base of index lines: keys that say nothing are left out."""

    def to_line(self) -> dict[str, Any]:
        """Return the line as plain JSON values."""
        return {key: value for key, value in self.to_json().items() if value is not None and value != {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaLine(Line):
    """A line of ``media/<job>.<n>.jsonl``: an image, a sound, a video or a text."""

    KIND: ClassVar[str] = "media line"
    step: int = _a(_int)
    time: float = _a(_number)
    kind: str = _a(_kind)
    tag: str = _a(_text)
    type: str = _a(_text, "application/octet-stream")
    path: str | None = _a(_path_or_none, None)
    """Of the file, in the run folder; None for a short text."""
    size: int = _a(_count, 0)
    text: str | None = _a(_text_or_none, None)
    caption: str | None = _a(_text_or_none, None)
    info: dict[str, Any] = _a(_map, factory=dict)
    """What the writer knew of it, such as ``width`` and ``height``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLine(Line):
    """A line of ``tables/<job>.<n>.jsonl``: a table at a step, in a Parquet file."""

    KIND: ClassVar[str] = "table line"
    step: int = _a(_int)
    time: float = _a(_number)
    name: str = _a(_text)
    path: str = _a(_path)
    size: int = _a(_count, 0)
    rows: int = _a(_count, 0)
    columns: list[dict[str, Any]] = _a(_maps, factory=list)
    """``name``, ``type`` (Arrow's), and ``json: true`` where the column holds JSON texts of values of mixed types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactLine(Line):
    """A line of ``artifacts/<job>.<n>.jsonl``: a version of an artifact."""

    KIND: ClassVar[str] = "artifact line"
    step: int | None = _a(_int_or_none, None)
    time: float = _a(_number)
    name: str = _a(_text)
    type: str | None = _a(_text_or_none, None)
    version: int = _a(_count)
    path: str = _a(_path)
    manifest: str = _a(_path)
    reference: bool = _a(_flag, False)
    count: int = _a(_count, 0)
    size: int = _a(_count, 0)


LINES: dict[str, type[Line]] = {layout.MEDIA: MediaLine, layout.TABLES: TableLine, layout.ARTIFACTS: ArtifactLine}
"""What stands in the index of each folder."""


def paths_of(line: Line) -> list[str]:
    """Paths in the run folder that a line says are there. What it refers to may have gone since, and is not named."""
    if isinstance(line, ArtifactLine):
        return [line.manifest] if line.reference else [line.manifest, line.path]
    path = getattr(line, "path", None)
    return [] if path is None else [path]


class Placed(Protocol):
    """Something recorded at a step by a session of a job."""

    @property
    def job(self) -> str:
        """Its job."""
        ...

    @property
    def session(self) -> int:
        """Its session."""
        ...

    @property
    def step(self) -> int:
        """Its step."""
        ...


AnyPlaced = TypeVar("AnyPlaced", bound=Placed)


def standing(items: Sequence[AnyPlaced], keys: Iterable[object], sessions: Sessions) -> list[AnyPlaced]:
    """Leave out what a resumed trainer voided (protocol.md 8.3).

    That is what older sessions of main recorded under a key (of ``keys``, one an item) from the first step on at which
    a later session recorded under it.
    """
    named = list(zip(items, keys, strict=True))
    firsts: dict[object, dict[int, int]] = {}
    for item, key in named:
        if item.job == MAIN:
            group = sessions.group(MAIN, item.session)
            first = firsts.setdefault(key, {})
            first[group] = min(item.step, first.get(group, item.step))
    cuts = {key: main_cuts(first) for key, first in firsts.items()}
    kept = []
    for item, key in named:
        cut = cuts[key].get(sessions.group(MAIN, item.session)) if item.job == MAIN else None
        if cut is None or item.step < cut:
            kept.append(item)
    return kept


def read_line(folder: str, value: object) -> Line:
    """Read a line of the index in ``folder``; ``InvalidError`` says what is wrong with it."""
    if not isinstance(value, dict):
        raise InvalidError("no JSON object")
    return LINES[folder].from_json(value)
