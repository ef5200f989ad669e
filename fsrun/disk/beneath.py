"""Opens what stands below a folder and nothing else, whatever names and links say, also while they change.

Each part of a path is opened in the folder that was opened before it, and no link is followed by the system: links are
read here, and those that lead out of the folder are refused. Looking first and opening then would leave a moment in
which a folder becomes a link. Reads only. Leaves to others: which folder (a run's), what is done with the file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fsrun.disk.fs import require_file
from fsrun.disk.refresh import refresh

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_LINKS = 16
_PARTS = 256


class LeadsOut(PermissionError):
    """A link on a path leads out of the folder that all stands below."""


@dataclass(frozen=True, slots=True)
class Name:
    """What stands in a folder. ``size`` and ``mtime_ns`` are those of the file that a link inside leads to."""

    name: str
    kind: str
    """``file``, ``folder``, ``link`` (out of the folder, or to nothing) or ``other`` (a pipe, a device)."""
    size: int | None
    mtime_ns: int | None
    link: str | None = None
    """Where a link says that it leads."""


def open_file(folder: str, path: str) -> int:
    """Open a regular file by its path below ``folder``; the descriptor is the caller's.

    Raises ``OSError``: ``FileNotFoundError`` where there is none, ``PermissionError`` where a part or a link leads out,
    ``IsADirectoryError`` for a folder.
    """
    descriptor = walk(folder, path, last_is_folder=False)
    try:
        require_file(descriptor, f"{folder}/{path}")
        os.set_blocking(descriptor, True)
        refresh(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def names_below(folder: str, path: str, start: int = 0, limit: int | None = None) -> tuple[list[Name], int]:
    """What stands in the folder at a path below ``folder``, ``""`` for itself: sorted, and how many there are in all.

    ``start``, ``limit``: this part alone. Raises ``OSError``.
    """
    with _opened(walk(folder, path, last_is_folder=True)) as descriptor:
        names = sorted(os.listdir(descriptor))
        part = names[start:] if limit is None else names[start : start + limit]
        return [_facts(folder, path, name, descriptor) for name in part], len(names)


def _facts(folder: str, path: str, name: str, descriptor: int) -> Name:
    try:
        facts = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except OSError:
        return Name(name, "other", None, None)
    if not stat.S_ISLNK(facts.st_mode):
        return Name(name, _kind(facts), facts.st_size, facts.st_mtime_ns)
    target = _read_link(name, descriptor)
    try:
        with _opened(walk(folder, f"{path}/{name}" if path else name, last_is_folder=None)) as there:
            facts = os.fstat(there)
    except OSError:
        return Name(name, "link", None, None, target)
    return Name(name, _kind(facts), facts.st_size, facts.st_mtime_ns, target)


def _kind(facts: os.stat_result) -> str:
    return "file" if stat.S_ISREG(facts.st_mode) else "folder" if stat.S_ISDIR(facts.st_mode) else "other"


@contextmanager
def _opened(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _parts(path: str) -> list[str]:
    if "\0" in path:
        raise PermissionError(errno.EACCES, "no path", path.replace("\0", "?")[:200])
    return path.split("/") if path else []


def walk(folder: str, path: str, *, last_is_folder: bool | None, top: int | None = None) -> int:
    """Open what stands at ``path``. ``last_is_folder``: None where it may be either.

    ``top``: ``folder`` as it was opened, which is closed here.
    """
    # What is open by now: the folder itself, then one for each part. The last one is where the next part is looked up.
    trail = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if top is None else top]
    try:
        left = _parts(path)
        if any(part in ("", ".", "..") for part in left):
            raise PermissionError(errno.EACCES, "this path is not below the folder of the run", path[:200])
        links = 0
        while left:
            part = left.pop(0)
            if part == "..":  # of a link
                if len(trail) == 1:
                    raise _leads_out(path)
                os.close(trail.pop())
            elif part not in ("", "."):
                target = _next(trail, part, left, last_is_folder)
                if target is not None:
                    links += 1
                    if links > _LINKS or len(left) > _PARTS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path[:200])
                    if target.startswith("/"):
                        if not target.startswith(f"{folder}/"):
                            raise _leads_out(path)
                        while len(trail) > 1:
                            os.close(trail.pop())
                        target = target[len(folder) :]
                    left = [*_parts(target), *left]
        return trail.pop()
    finally:
        for descriptor in trail:
            os.close(descriptor)


def _next(trail: list[int], part: str, left: list[str], last_is_folder: bool | None) -> str | None:
    """Open a part and put it on the trail; or return where it leads, as it is a link."""
    is_last = not any(left)
    flags = _FOLDER if not is_last or last_is_folder else _FILE
    try:
        trail.append(os.open(part, flags, dir_fd=trail[-1]))
    except OSError as error:
        # A link is ELOOP, or ENOTDIR where a folder was asked for.
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
            target = _read_link(part, trail[-1])
            if target is not None:
                return target
        if error.errno == errno.ESTALE:
            raise FileNotFoundError(errno.ENOENT, "stale handle, read as missing", part) from error
        raise
    return None


def _read_link(name: str, folder: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return None


def _leads_out(path: str) -> LeadsOut:
    return LeadsOut(errno.EACCES, "a link on this path leads out of the folder of the run", path[:200])
