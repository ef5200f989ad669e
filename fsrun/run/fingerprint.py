"""What was handed over, byte for byte as far as is cheap: names, sizes, times and samples (protocol.md 6, "Meta").

Does: takes the fingerprint of a file or folder; compares one with a meta; waits for files that another host does not
see yet. Leaves to others: what a difference means (``entries``), links and copies (``handover``).
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fsrun.core.timing import VISIBLE_POLL, VISIBLE_WAIT
from fsrun.disk.clock import Clock
from fsrun.disk.fs import FileSystem

_BLOCK = 4096
MAX_DEPTH = 40
"""Folders within folders, links followed, that are handed over; deeper is a loop or no checkpoint."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first file that is not as its meta says. ``late``: it may only not have arrived yet (missing or short)."""

    text: str
    late: bool


def sample(descriptor: int, size: int) -> str:
    """Blake2b (16 bytes, hex) of the first, last and middle 4 KiB; of the whole file up to 12 KiB.

    The middle block begins at ``size // 2``. Reads at most 12 KiB.
    """
    digest = hashlib.blake2b(digest_size=16)
    if size <= 3 * _BLOCK:
        digest.update(os.pread(descriptor, 3 * _BLOCK, 0))
    else:
        for start in (0, size - _BLOCK, size // 2):
            digest.update(os.pread(descriptor, _BLOCK, start))
    return digest.hexdigest()


def of_open_file(descriptor: int, name: str) -> dict[str, Any]:
    """The ``files`` item of an open regular file; ``ValueError`` saying what it is instead."""
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        raise ValueError(f"{name or 'it'} is {_kind(facts.st_mode)}")
    return {
        "name": name,
        "size": facts.st_size,
        "mtime_ns": facts.st_mtime_ns,
        "sample": sample(descriptor, facts.st_size),
    }


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a named pipe"
    return "a device" if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else "no regular file"


def walk(fs: FileSystem, root: str) -> list[str]:
    """Relative paths of the files below a folder of ours, sorted; links are not followed, empty folders not seen."""
    found: list[str] = []
    folders = [""]
    while folders:
        folder = folders.pop()
        for name, is_folder in fs.scan(f"{root}/{folder}" if folder else root):
            path = f"{folder}/{name}" if folder else name
            (folders if is_folder else found).append(path)
    return sorted(found)


def is_folder(fs: FileSystem, path: str) -> bool:
    """Whether an entry is a folder; ``FileNotFoundError`` where it is gone."""
    folder, _, name = path.rpartition("/")
    for found, is_a_folder in fs.scan(folder):
        if found == name:
            return is_a_folder
    raise FileNotFoundError(path)


def take(fs: FileSystem, path: str) -> tuple[str, list[dict[str, Any]]]:
    """``kind`` and ``files`` of an entry as it stands; raises ``OSError`` or ``ValueError`` where it cannot be read."""
    if not is_folder(fs, path):
        return "file", [_of_path(fs, path, "")]
    return "folder", [_of_path(fs, f"{path}/{name}", name) for name in walk(fs, path)]


def _of_path(fs: FileSystem, path: str, name: str) -> dict[str, Any]:
    descriptor = fs.open(path)
    try:
        return of_open_file(descriptor, name)
    finally:
        os.close(descriptor)


def compare(fs: FileSystem, path: str, files: Iterable[Mapping[str, Any]]) -> Difference | None:
    """The first difference between an entry and the ``files`` of its meta, or None. Other files there do not count."""
    listed: set[str] = set()
    for item in files:
        name = str(item.get("name", ""))
        full = f"{path}/{name}" if name else path
        folder = full.rpartition("/")[0]
        shown = name or "the file"
        if folder not in listed:  # protocol.md 8: no name is looked up before its folder was listed afresh
            listed.add(folder)
            try:
                fs.names(folder)
            except (FileNotFoundError, NotADirectoryError):
                return Difference(f"{shown} is missing", late=True)
        try:
            found = _of_path(fs, full, name)
        except (FileNotFoundError, NotADirectoryError):
            return Difference(f"{shown} is missing", late=True)
        except ValueError as error:
            return Difference(str(error), late=False)
        if found["size"] != item.get("size", found["size"]):
            late = isinstance(item["size"], int) and found["size"] < item["size"]
            return Difference(f"{shown} has {found['size']} bytes, {item['size']!r:.40} were handed over", late=late)
        for key, what in (("mtime_ns", "was written again"), ("sample", "has other bytes")):
            if item.get(key) is not None and found[key] != item[key]:
                return Difference(f"{shown} {what}", late=False)
    return None


def wait_until_same(
    fs: FileSystem,
    clock: Clock,
    path: str,
    files: Iterable[Mapping[str, Any]],
    *,
    limit: float = VISIBLE_WAIT,
) -> Difference | None:
    """Compare again until nothing is missing or short, for ``limit`` seconds at most; what is still different, or None.

    Network file systems show files to other hosts up to 60 s late.
    """
    items = list(files)
    start = clock.monotonic()
    while True:
        difference = compare(fs, path, items)
        if difference is None or not difference.late or clock.monotonic() - start >= limit:
            return difference
        clock.sleep(VISIBLE_POLL)
