"""Names of projects, runs, jobs, tokens and entries (protocol.md 3, "Names"): grammar, and portable forms of free text.

What a name means on disk is decided in ``layout``.
"""

from __future__ import annotations

import hashlib
import re
from enum import Enum

MAX_ID = 128
MAX_JOB = 48
MAX_ENTRY = 200
MAIN = "main"

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]*\Z")
_JOB = re.compile(r"[a-z0-9][a-z0-9_-]*\Z")
_TOKEN = re.compile(r"[0-9a-z]{8,32}\Z")
_NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,17})\Z")
_NOT_PORTABLE = re.compile(r"[^A-Za-z0-9._=-]+")
_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", *(f"com{i}" for i in range(1, 10)), *(f"lpt{i}" for i in range(1, 10))]
)
_SUFFIX = re.compile(r"(?<=[^.])\.[A-Za-z][A-Za-z0-9]{0,15}\Z")
_COUNTED = re.compile(r"~([1-9][0-9]{0,8})\Z")


class EntryClass(Enum):
    """How a name that stands in ``queue/`` is treated."""

    ENTRY = "entry"
    IGNORED = "ignored"
    """A leading dot, a trailing ``.tmp``, or ``FINISHED``: not an entry, nothing is said."""
    REFUSED = "refused"
    """Too long, control characters, or no UTF-8: warned about once and left alone."""


def is_id(name: str) -> bool:
    """Whether ``name`` can stand as the folder of a project or run as it is, on every common system."""
    stem = name.split(".", 1)[0].lower()
    return (
        len(name) <= MAX_ID
        and _ID.match(name) is not None
        and stem not in _DEVICES
        and not name.endswith(".")
        and not name.endswith(".tmp")
    )


def portable(name: str) -> str:
    """Return the folder name of a project or run id: ``name`` itself where it is one, else a slug and a digest.

    The same text gives the same folder each time, and two texts do not meet in one folder (48 bits of SHA-256).
    """
    if is_id(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    slug = _NOT_PORTABLE.sub("-", name).strip(".-=_ ")[: MAX_ID - 24]
    if not slug or slug.split(".", 1)[0].lower() in _DEVICES:
        slug = f"id-{slug}".rstrip("-")
    return f"{slug.rstrip('.')}-{digest}"


def safe_folder(name: str) -> str:
    """Return the folder of a tag, table or artifact: as ``portable``, but never the name of an index (``.jsonl``)."""
    if not (is_id(name) and name.lower().endswith(".jsonl")):
        return portable(name)
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{name[: -len('.jsonl')][: MAX_ID - 24].rstrip('.')}-{digest}"


def is_job(name: str) -> bool:
    """Whether ``name`` can name a job: ``[a-z0-9][a-z0-9_-]*``, at most 48 bytes."""
    return len(name) <= MAX_JOB and _JOB.match(name) is not None


def is_token(text: str) -> bool:
    """Whether ``text`` can be a session's token: 8 to 32 of ``[0-9a-z]``."""
    return _TOKEN.match(text) is not None


def parse_number(text: str) -> int | None:
    """Read a decimal number without leading zeros, or None."""
    return int(text) if _NUMBER.match(text) else None


def classify_entry(name: str) -> EntryClass:
    """Say whether a name in ``queue/`` is an entry (protocol.md 3)."""
    if name.startswith(".") or name.endswith(".tmp") or name == "FINISHED":
        return EntryClass.IGNORED
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        return EntryClass.REFUSED
    if not 0 < size <= MAX_ENTRY or "/" in name or any(ord(c) < 32 or ord(c) == 127 for c in name):
        return EntryClass.REFUSED
    return EntryClass.ENTRY


def is_entry(name: str) -> bool:
    """Whether ``name`` may stand in the queue as an entry."""
    return classify_entry(name) is EntryClass.ENTRY


def split_entry(name: str) -> tuple[str, int, str]:
    """Split an entry name into base, use and suffix: ``epoch_012~2.pt`` -> ``("epoch_012", 2, ".pt")``."""
    found = _SUFFIX.search(name)
    suffix = found.group() if found else ""
    base = name[: len(name) - len(suffix)]
    counted = _COUNTED.search(base)
    if counted and counted.start() > 0 and int(counted.group(1)) >= 2:
        return base[: counted.start()], int(counted.group(1)), suffix
    return base, 1, suffix


def use_entry(name: str, use: int) -> str:
    """Return the name for the ``use``-th use of an entry name: ``epoch_012.pt``, ``epoch_012~2.pt``, ...

    A base that would make the name too long is cut at a character.
    """
    base, _, suffix = split_entry(name)
    mark = f"~{use}" if use > 1 else ""
    room = MAX_ENTRY - len((mark + suffix).encode())
    return base.encode()[:room].decode("utf-8", "ignore") + mark + suffix
