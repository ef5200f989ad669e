"""Finds finished checkpoints in a folder that a trainer fills: ``fsrun enqueue --watch``.

A name is taken when it is no staging name and stood still, with everything below it, over two looks. What was handed
over is remembered by the metas of the queue, so that a watcher that is started again takes nothing twice.
"""

from __future__ import annotations

import fnmatch
import os
import re

from fsrun.core import layout
from fsrun.core.errors import InvalidError
from fsrun.core.order import step_of_name
from fsrun.core.records import Meta
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import Store
from fsrun.run import fingerprint

_STAGING = re.compile(
    r"\.|tmp[-_.]"  # hidden; tmp-checkpoint-500 (transformers)
    r"|.*(?:[-_.]tmp|\.part|\.partial|\.incomplete|\.lock|~)\Z"  # checkpoint-500.tmp
    r"|.*[-._]tmp[-.]",  # 0.orbax-checkpoint-tmp-1703334121930256, model.tmp.4711
    re.IGNORECASE | re.DOTALL,
)
Facts = tuple[tuple[str, int, int], ...]


def is_staging(name: str) -> bool:
    """Whether a name says that its trainer has not finished writing it."""
    return _STAGING.match(name) is not None


class FolderWatch:
    """Looks at a folder again and again; ``look`` returns what is ready, in the order of steps."""

    def __init__(self, fs: FileSystem, folder: str, pattern: str, unit: Store) -> None:
        self._fs = fs
        self.folder = folder
        self._pattern = pattern
        self._unit = unit
        self._seen: dict[str, Facts] = {}
        self._taken: dict[str, Facts] = {}
        self._metas: dict[str, list[Meta]] = {}
        self._read: set[str] = set()

    def look(self) -> list[str]:
        """Return the paths that became ready, and call ``took`` for each that was handed over."""
        try:
            listed = self._fs.names(self.folder)
        except FileNotFoundError:
            listed = []  # the trainer makes its folder at the first save
        names = [name for name in listed if fnmatch.fnmatchcase(name, self._pattern) and not is_staging(name)]
        now = {name: facts for name in names if (facts := self._facts(name))}
        steady = [name for name, facts in now.items() if self._seen.get(name) == facts != self._taken.get(name)]
        self._seen = now
        ready = [name for name in steady if not self._was_handed_over(name)]
        return [f"{self.folder}/{name}" for name in sorted(ready, key=_by_step)]

    @property
    def settling(self) -> bool:
        """Whether something stands here that was neither taken nor ready yet."""
        return any(self._taken.get(name) != facts for name, facts in self._seen.items())

    def took(self, path: str) -> None:
        """Do not return a path again unless it changes."""
        name = path.rpartition("/")[2]
        self._taken[name] = self._seen[name]

    def _facts(self, name: str) -> Facts | None:
        """Names, sizes and times of a checkpoint; None where it is none, or is not finished, or has just gone."""
        path = f"{self.folder}/{name}"
        try:
            if os.path.islink(path) and os.path.dirname(os.path.realpath(path)) == os.path.realpath(self.folder):
                return None  # another name, such as "latest", for what stands beside it
            top = self._fs.stat(path)
            if not top.is_folder:
                return ((name, top.size, top.mtime_ns),)
            files = fingerprint.walk(self._fs, path)
            if not files or any(map(is_staging, (part for file in files for part in file.split("/")))):
                return None
            below = ((file, self._fs.stat(f"{path}/{file}")) for file in files)
            return ((name, top.inode, top.mtime_ns), *((file, facts.size, facts.mtime_ns) for file, facts in below))
        except OSError:
            return None

    def _was_handed_over(self, name: str) -> bool:
        """Whether a meta says that this path, with these very bytes, was handed over before, by whomever."""
        path = f"{self.folder}/{name}"
        self._read_metas()
        for meta in self._metas.get(path, ()):
            try:
                same = fingerprint.compare(self._fs, path, meta.files) is None
            except OSError:
                same = False
            if same:
                self._taken[name] = self._seen[name]
                return True
        return False

    def _read_metas(self) -> None:
        for found in self._unit.names(layout.META):
            if found in self._read or layout.parse_meta_name(found) is None:
                continue
            record = self._unit.record(f"{layout.META}/{found}")
            if record is None:
                continue
            self._read.add(found)
            try:
                meta = Meta.from_json(record)
            except InvalidError:
                continue
            self._metas.setdefault(meta.source, []).append(meta)


def _by_step(name: str) -> tuple[bool, int, str]:
    step = step_of_name(name)
    return step is None, step or 0, name
