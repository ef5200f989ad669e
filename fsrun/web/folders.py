"""Which folders below a root are runs, by listings alone: nothing is looked up that a listing has not shown.

Links are not followed, in or out of the root: what the viewer shows stands below the root. A run directly below the
root, or a root that is itself a run, has ``~`` in place of a folder's name, which no project has. A folder whose name
is not UTF-8 has no key that could stand in JSON or an address: it is told as what is no run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from fsrun.core import layout
from fsrun.core.errors import NotFoundError
from fsrun.disk.fs import FileSystem

HERE = "~"
_TOLD = 50
"""Of what is no run, so much is named."""


@dataclass(slots=True)
class Strays:
    """What stands where runs stand and is none: told to people, and left alone."""

    count: int = 0
    named: list[str] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)
    """Folders of the root that could not be listed this time: nothing is known of what is in them."""

    def add(self, path: str) -> None:
        """Count one more; ``path`` is relative to the root."""
        self.count += 1
        if len(self.named) < _TOLD:
            # Bytes that are no text are told by number: two names stay two.
            self.named.append(path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))


def find(fs: FileSystem, root: str, known: Callable[[str], bool], strays: Strays) -> Iterator[tuple[str, str]]:
    """Yield (key, folder) of every run below ``root``; those that are ``known`` without a look inside.

    Raises ``OSError`` where the root cannot be listed.
    """
    tops = sorted(fs.scan(root))
    if (layout.JOBS, True) in tops:
        yield f"{HERE}/{HERE}", root
        return
    for top, is_folder in tops:
        if top.startswith(".") or top == HERE:
            continue
        is_named = _is_text(top)
        inside = _inside(fs, f"{root}/{top}") if is_folder and is_named else None
        if inside is None:
            strays.add(top)
            if is_folder and is_named:
                strays.unread.add(top)
        elif (layout.JOBS, True) in inside:
            yield f"{HERE}/{top}", f"{root}/{top}"
        else:
            yield from _of_project(fs, root, top, inside, known, strays)


def _of_project(
    fs: FileSystem,
    root: str,
    project: str,
    inside: Iterable[tuple[str, bool]],
    known: Callable[[str], bool],
    strays: Strays,
) -> Iterator[tuple[str, str]]:
    for name, is_folder in sorted(inside):
        if name.startswith("."):
            continue
        key, path = f"{project}/{name}", f"{root}/{project}/{name}"
        if is_folder and _is_text(name) and (known(key) or (layout.JOBS, True) in (_inside(fs, path) or ())):
            yield key, path
        else:
            strays.add(key)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _inside(fs: FileSystem, path: str) -> list[tuple[str, bool]] | None:
    try:
        return fs.scan(path)
    except OSError:
        return None


def look_up(fs: FileSystem, root: str, project: str, run: str) -> str:
    """The folder of one run, found by listings of the folders above it. Raises ``NotFoundError``."""
    path = root
    for name in (project, run):
        if name == HERE:
            continue
        if not _is_text(name) or (name, True) not in (_inside(fs, path) or ()):
            break
        path = f"{path}/{name}"
    else:
        if (layout.JOBS, True) in (_inside(fs, path) or ()) and (project == HERE) >= (run == HERE):
            return path
    raise NotFoundError(f"no run {project[:200]}/{run[:200]} below {root}")
