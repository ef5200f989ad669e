"""Finds finished checkpoints in a folder that a trainer fills: ``fsrun enqueue --watch``.

A name is taken when it is no staging name, holds what was asked for (``ready``), and stood still with everything below
it for the settle time, over two looks at least. What was handed over is remembered by the metas of the queue, so that a
watcher that is started again takes nothing twice.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from fsrun.core import layout
from fsrun.core.errors import InvalidError
from fsrun.core.order import step_of_name
from fsrun.core.records import Meta
from fsrun.core.timing import WATCH_SETTLE
from fsrun.disk.clock import Clock, SystemClock
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import Store
from fsrun.run import fingerprint

_STAGING = re.compile(
    r"\.|tmp[-_.]"  # hidden; tmp-checkpoint-500 (transformers)
    r"|.*(?:[-_.]tmp|\.part|\.partial|\.incomplete|\.lock|~)\Z"  # checkpoint-500.tmp
    r"|.*[-._]tmp[-.]",  # 0.orbax-checkpoint-tmp-1703334121930256, model.tmp.4711
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a look saw of a checkpoint: its inode, and (name below it, size, mtime in ns) of each file."""

    inode: int
    files: frozenset[tuple[str, int, int]]
    is_folder: bool = False

    def grew_from(self, taken: Facts) -> bool:
        """Whether this is what was taken, written on since; one that is being deleted only loses files."""
        return self.inode == taken.inode and not self.files <= taken.files

    def is_part_of(self, taken: Facts | None) -> bool:
        """Whether there is nothing in it that was not taken."""
        return taken is not None and self.inode == taken.inode and self.files <= taken.files


def is_staging(name: str) -> bool:
    """Whether a name says that its trainer has not finished writing it."""
    return _STAGING.match(name) is not None


class FolderWatch:
    """Looks at a folder again and again; ``look`` returns what is ready, in the order of steps.

    ``settle``: seconds that a checkpoint must have stood still. ``ready``: a pattern of which a folder must hold a file
    (its name, or its path in the folder). ``left_trace``: whether an entry stands anywhere or has an outcome.
    """

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        pattern: str,
        unit: Store,
        *,
        settle: float = WATCH_SETTLE,
        ready: str | None = None,
        clock: Clock | None = None,
        left_trace: Callable[[str], bool] = lambda entry: True,
    ) -> None:
        self._fs = fs
        self.folder = folder
        self._pattern = pattern
        self._unit = unit
        self._settle = settle
        self._marker = ready
        self._clock = clock or SystemClock()
        self._seen: dict[str, Facts] = {}
        self._since: dict[str, float] = {}
        self._changed = self._clock.monotonic()
        self._taken: dict[str, Facts] = {}
        self._told: set[str] = set()
        self._metas: dict[str, list[Meta]] = {}
        self._read: set[str] = set()
        self._left_trace = left_trace
        self._started = False
        self._unpublished: str | None = None
        self.grown: list[str] = []
        """Names that were written on after they had been handed over, since the last look."""

    def look(self) -> list[str]:
        """Return the paths that became ready; call ``took`` for each that was handed over."""
        try:
            listed = self._fs.names(self.folder)
        except FileNotFoundError:
            listed = []  # the trainer makes its folder at the first save
        names = [name for name in listed if fnmatch.fnmatchcase(name, self._pattern) and not is_staging(name)]
        found = {name: facts for name in names if (facts := self._facts(name))}
        now = self._clock.monotonic()
        before, self._seen = self._seen, found
        if found != before:
            self._changed = now
        self._since = {name: self._since[name] if before.get(name) == facts else now for name, facts in found.items()}
        steady = [name for name, facts in found.items() if before.get(name) == facts and self._has_settled(name, now)]
        self._note_grown()
        ready = [name for name in steady if self._is_new(name) and self._is_ready(name)]
        ready = [name for name in ready if not self._was_handed_over(name)]
        return [f"{self.folder}/{name}" for name in sorted(ready, key=_by_step)]

    @property
    def settling(self) -> bool:
        """Whether something new stands here that has not stood still for long enough, or is ready and not taken."""
        now = self._clock.monotonic()
        return any(
            self._is_new(name) and (self._is_ready(name) or not self._has_settled(name, now)) for name in self._seen
        )

    @property
    def unready(self) -> list[str]:
        """Names that stand still and lack the file that makes them ready."""
        return sorted(name for name in self._seen if self._is_new(name) and not self._is_ready(name))

    @property
    def still_for(self) -> float:
        """Seconds since something changed here, or since the first look."""
        return self._clock.monotonic() - self._changed

    def took(self, path: str) -> None:
        """Do not return a path again unless it changes."""
        name = path.rpartition("/")[2]
        self._taken[name] = self._seen[name]
        self._told.discard(name)

    def _has_settled(self, name: str, now: float) -> bool:
        return now - self._since[name] >= self._settle

    def _is_new(self, name: str) -> bool:
        return not self._seen[name].is_part_of(self._taken.get(name))

    def _is_ready(self, name: str) -> bool:
        marker, facts = self._marker, self._seen[name]
        if marker is None or not facts.is_folder:
            return True
        below = (file for file, _, _ in facts.files)
        return any(fnmatch.fnmatchcase(text, marker) for file in below for text in (file, file.rpartition("/")[2]))

    def _note_grown(self) -> None:
        taken = ((name, facts, self._taken.get(name)) for name, facts in self._seen.items())
        self.grown = [
            name for name, facts, then in taken if then is not None and facts.grew_from(then) and name not in self._told
        ]
        self._told.update(self.grown)

    def _facts(self, name: str) -> Facts | None:
        """What a checkpoint looks like; None where it is none, or is not finished, or has just gone."""
        path = f"{self.folder}/{name}"
        try:
            if os.path.islink(path) and os.path.dirname(os.path.realpath(path)) == os.path.realpath(self.folder):
                return None  # another name, such as "latest", for what stands beside it
            top = self._fs.stat(path)
            if not top.is_folder:
                return Facts(top.inode, frozenset({("", top.size, top.mtime_ns)}))
            files = fingerprint.walk(self._fs, path)
            if not files or any(map(is_staging, (part for file in files for part in file.split("/")))):
                return None
            below = ((file, self._fs.stat(f"{path}/{file}")) for file in files)
            return Facts(top.inode, frozenset((file, f.size, f.mtime_ns) for file, f in below), is_folder=True)
        except OSError:
            return None

    def _was_handed_over(self, name: str) -> bool:
        """Whether a meta says that this path, with these very bytes, was handed over before, by whomever."""
        path = f"{self.folder}/{name}"
        self._read_metas()
        for meta in self._metas.get(path, ()):
            if meta.entry == self._unpublished or self._gained(name, meta):
                continue
            try:
                same = fingerprint.compare(self._fs, path, meta.files) is None
            except OSError:
                same = False
            if same:
                self._taken[name] = self._seen[name]
                return True
        return False

    def _find_unpublished(self) -> str | None:
        """The name that a watcher which was killed between reserving and publishing has left without an entry.

        It can be the newest from this folder alone (by the server's stamps: hosts' clocks differ). Older ones that left
        no trace were taken by a loop that makes no claims.
        """
        newest: tuple[int, str] = (0, "")
        for metas in (m for source, m in self._metas.items() if source.startswith(f"{self.folder}/")):
            for meta in metas:
                try:
                    stamp = self._fs.stat(self._unit.path(layout.META, layout.meta_name(meta.entry))).mtime_ns
                except OSError:
                    continue
                newest = max(newest, (stamp, meta.entry))
        return newest[1] if newest[1] and not self._left_trace(newest[1]) else None

    def _gained(self, name: str, meta: Meta) -> bool:
        """Whether a folder holds a file that was not handed over. A link to a folder was handed over as its files."""
        known = [str(item.get("name")) for item in meta.files]
        new = {file for file, _, _ in self._seen[name].files}.difference(known)
        return any(not any(other.startswith(f"{file}/") for other in known) for file in new)

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
        if not self._started:
            self._started = True
            self._unpublished = self._find_unpublished()


def _by_step(name: str) -> tuple[bool, int, str]:
    step = step_of_name(name)
    return step is None, step or 0, name
