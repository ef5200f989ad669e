"""Artifacts: files that belong to a run's result, kept in versions below ``artifacts/``.

Does: links (where links are refused, copies) a file or folder to ``artifacts/<name>/v<i>/``, or refers to what already
stands in the run folder, and appends one line to the session's index. Leaves to others: media and tables.

A link shares its bytes with the source: rewriting the source in place changes the artifact too, replacing it does not.

protocol.md: 2 (tree), 6 (index lines).
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fsrun.core import codec, ids, layout
from fsrun.core.records import rfc3339
from fsrun.core.timing import ARTIFACT_WAIT
from fsrun.disk.clock import Clock
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import NO_LINKS, Store

MAX_FILES = 100_000
_MAX_DEPTH = 40

File = tuple[str, str, int]
"""(name in the artifact, path of the source, bytes)."""


class Artifacts:
    """The artifacts of one session; one thread at a time writes."""

    def __init__(
        self, fs: FileSystem, clock: Clock, run_dir: str, job: str, session: int, warn: Callable[[str], None]
    ) -> None:
        self._fs = fs
        self._clock = clock
        self._store = Store(fs, run_dir, job, session)
        self._warn = warn
        self._lock = threading.Lock()
        self._change = threading.Condition()
        self._sealed = False
        self._threads: list[threading.Thread] = []
        self._sizes: dict[str, int] = {}

    def add(self, name: str, path: str | os.PathLike[str], type: str | None) -> None:
        """Keep ``path`` as the next version of artifact ``name``. Never raises; waits ten seconds at most.

        After a crash: a hidden folder that a cleaner removes, or the version without its index line, or all of it.
        """
        try:
            # The thread may outlive the caller's working folder.
            full = os.path.abspath(os.fsdecode(path))
            thread = threading.Thread(
                target=self._add, args=(str(name), full, type), name="fsrun-artifact", daemon=True
            )
            thread.start()
        except Exception as error:  # noqa: BLE001 - whatever is given, the training goes on
            self._warn(f"artifact {name!r}: {path} was not kept: {error}")
            return
        thread.join(ARTIFACT_WAIT)
        self._threads = [other for other in self._threads if other.is_alive()]
        if thread.is_alive():
            self._threads.append(thread)
            self._warn(f"artifact {name!r}: {path} takes more than {ARTIFACT_WAIT:.0f} s and goes on in the background")

    def drain(self, timeout: float) -> bool:
        """Wait for what goes on in the background; False where it did not end in time."""
        for thread in self._threads:
            thread.join(max(0.0, timeout))
        return not any(thread.is_alive() for thread in self._threads)

    def acknowledged(self) -> dict[str, int]:
        """Bytes of the index that write and fsync acknowledged, by path in the run folder."""
        with self._change:
            return {path: size for path, size in self._sizes.items() if path == self._index()}

    def seal(self) -> None:
        """The sizes are being stated for a fence: no line counts until ``reopen``."""
        with self._change:
            self._sealed = True

    def reopen(self, session: int) -> None:
        """Go on in another session of the same process; a line that was in doubt is written again there."""
        with self._change:
            old = self._store
            self._store = Store(old.fs, old.root, old.job, session)
            self._sealed = False
            self._change.notify_all()

    def _index(self) -> str:
        return f"{layout.ARTIFACTS}/{layout.scalars_name(self._store.job, self._store.session)}"

    def _add(self, name: str, path: str, type: str | None) -> None:
        try:
            with self._lock:
                self._keep(name, path, type)
        except Exception as error:  # noqa: BLE001 - nothing of this may reach the user's program
            self._warn(f"artifact {name!r}: {path} was not kept: {error}")

    def _keep(self, name: str, path: str, type: str | None) -> None:
        full = os.path.realpath(path)
        root = os.path.realpath(self._store.root)
        found, skipped = collect(full, avoid=root)
        line: dict[str, Any] = {"time": rfc3339(self._clock.now_ns()), "name": name, "type": type}
        if full.startswith(root + "/"):
            line |= {"version": None, "path": os.path.relpath(full, root), "reference": True}
        elif not found:
            self._warn(f"artifact {name!r}: {path} holds no file that can be read")
            return
        else:
            version, place = self._publish(ids.portable(name), found, skipped)
            line |= {"version": version, "path": place, "reference": False}
        if skipped:
            self._warn(f"artifact {name!r}: left out {len(skipped)} of {path}: {', '.join(skipped[:3])}")
        line["files"] = [{"name": inner, "size": size} for inner, _, size in found]
        self._append(line)

    def _publish(self, folder: str, found: list[File], skipped: list[str]) -> tuple[int, str]:
        parent = f"{layout.ARTIFACTS}/{folder}"
        self._store.ensure_folder(parent)
        token = secrets.token_hex(8)
        temp = f"{parent}/{layout.temp_name(self._store.job, self._store.session, token)}"
        self._store.ensure_folder(temp)
        try:
            for item in list(found):
                self._place(temp, item, found, skipped)
            version = self._next_version(parent)
            while True:
                place = f"{parent}/v{version}"
                try:
                    self._fs.rename(self._store.path(temp), self._store.path(place))
                    break
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
                    version += 1
            self._fs.sync_folder(self._store.path(parent))
            return version, place
        except BaseException:
            with suppress(OSError):
                self._store.remove(temp)
            raise

    def _place(self, temp: str, item: File, found: list[File], skipped: list[str]) -> None:
        inner, source, _ = item
        folder = os.path.dirname(inner)
        if folder:
            self._store.ensure_folder(f"{temp}/{folder}")
        target = self._store.path(temp, inner)
        try:
            self._fs.link(source, target)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            try:
                descriptor = self._fs.open(source)
            except OSError:
                found.remove(item)
                skipped.append(inner)
                return
            try:
                self._fs.copy(descriptor, target)
            finally:
                os.close(descriptor)

    def _next_version(self, parent: str) -> int:
        numbers = [ids.parse_number(name[1:]) for name in self._store.names(parent) if name.startswith("v")]
        return max((number for number in numbers if number is not None), default=-1) + 1

    def _append(self, line: dict[str, Any]) -> None:
        """Append a line to the session's index, again where the session changed meanwhile."""
        data = codec.encode_line(line)
        while True:
            with self._change:
                self._change.wait_for(lambda: not self._sealed)
                path = self._index()
            start = self._sizes.get(path, 0)
            self._write(path, start, data)
            with self._change:
                if not self._sealed and path == self._index():
                    self._sizes[path] = start + len(data)
                    return

    def _write(self, path: str, start: int, data: bytes) -> None:
        self._store.ensure_folder(layout.ARTIFACTS)
        log = self._fs.append(self._store.path(path))
        try:
            # What a failed write left behind would run into this line.
            log.truncate(start)
            while data:
                data = data[log.write(data) :]
            log.sync()
        finally:
            log.close()


def collect(path: str, avoid: str) -> tuple[list[File], list[str]]:
    """Return the files below ``path`` (sorted; links followed, each folder once), and the names that are left out.

    Left out: sockets, pipes and devices, what cannot be read, the run folder ``avoid`` where it lies below ``path``.
    Raises ``OSError`` where ``path`` itself cannot be read.
    """
    found: list[File] = []
    skipped: list[str] = []
    facts = os.stat(path)
    if stat.S_ISREG(facts.st_mode):
        return [(os.path.basename(path), path, facts.st_size)], skipped
    seen: set[tuple[int, int]] = set()
    waiting: list[tuple[str, str, int]] = [("", path, 0)]
    while waiting:
        prefix, folder, depth = waiting.pop()
        try:
            facts = os.stat(folder)
            names = sorted(os.listdir(folder))
        except OSError:
            if not prefix:
                raise
            skipped.append(prefix)
            continue
        if (facts.st_dev, facts.st_ino) in seen or depth > _MAX_DEPTH:
            continue
        seen.add((facts.st_dev, facts.st_ino))
        for name in names:
            inner, full = f"{prefix}{name}", os.path.realpath(f"{folder}/{name}")
            try:
                facts = os.stat(full)
            except OSError:
                skipped.append(inner)
                continue
            if stat.S_ISDIR(facts.st_mode):
                if full == avoid:
                    skipped.append(inner)
                else:
                    waiting.append((f"{inner}/", full, depth + 1))
            elif stat.S_ISREG(facts.st_mode) and len(found) < MAX_FILES:
                found.append((inner, full, facts.st_size))
            else:
                skipped.append(inner)
    return sorted(found), skipped
