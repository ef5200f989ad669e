"""Artifacts: files that belong to a run's result, in versions ``artifacts/<name>/v<k>/``.

Does: links (asked to, or where links are refused, copies) a file or folder, or refers to what already stands in the run
folder; puts a manifest beside it; takes digests afterwards. Leaves to others: threads (``background``), lines
(``indexlog``).

A link shares its bytes with the source: rewriting the source in place changes the artifact too, which its digests and
``fsrun check`` show; replacing the source does not.

protocol.md: 2 (tree), 6.12 (artifact lines).
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from fsrun.core import codec, ids, layout
from fsrun.core.indexes import ArtifactLine, Line
from fsrun.core.records import PROTOCOL
from fsrun.core.timing import ARTIFACT_WAIT
from fsrun.disk.clock import Clock
from fsrun.disk.store import NO_LINKS, Store
from fsrun.run.background import Background
from fsrun.run.collect import File, collect
from fsrun.run.digests import DIGEST_BYTES, Digests
from fsrun.run.latch import Latch


@dataclass
class Wish:
    """What one call of ``add_artifact`` asks for."""

    name: str
    path: str
    type: str | None
    step: int | None
    copy: bool
    done: Latch = field(default_factory=Latch)


class Artifacts:
    """The artifacts of one session. ``add_line`` takes index lines; all but ``add`` happens in ``background``."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        background: Background,
        add_line: Callable[[Line], None],
        warn: Callable[[str], None],
    ) -> None:
        self.store = store
        """Of the session; replaced where another one goes on."""
        self._clock = clock
        self._background = background
        self._add_line = add_line
        self._warn = warn
        self._hurry = threading.Event()
        self._last: Wish | None = None

    def add(self, wish: Wish) -> None:
        """Keep a file or folder as the next version of an artifact. Never raises; waits ten seconds at most.

        After a crash: a hidden folder that a cleaner removes, or the version without its line, or all but its digests.
        """
        if not self._background.put(0, lambda: self._keep_safely(wish)):
            self._warn(f"artifact {wish.name!r}: {wish.path} was not kept: too many wait")
            return
        self._last = wish
        if not wish.done.wait(ARTIFACT_WAIT):
            what = f"artifact {wish.name!r}: {wish.path}"
            self._warn(f"{what} takes more than {ARTIFACT_WAIT:.0f} s and goes on in the background")

    def hurry(self) -> None:
        """The run ends: take no digests any more."""
        self._hurry.set()

    def settle(self, timeout: float) -> bool:
        """Wait until the last artifact stands; its digests may be missing."""
        last = self._last
        return last is None or last.done.wait(timeout)

    def _keep_safely(self, wish: Wish) -> None:
        try:
            self._keep(wish)
        except Exception as error:  # noqa: BLE001 - nothing of this may reach the user's program
            self._warn(f"artifact {wish.name!r}: {wish.path} was not kept: {error}")
        finally:
            wish.done.set()

    def _keep(self, wish: Wish) -> None:
        full, root = os.path.realpath(wish.path), os.path.realpath(self.store.root)
        if full == root:
            raise ValueError("it is the run folder itself")
        found, left_out = collect(full, avoid=root)
        reference = full.startswith(root + "/")
        if not found:
            raise ValueError(f"it holds no file that can be read{_some(left_out)}")
        version, folder = self._publish(wish, found, left_out, reference)
        if left_out:
            self._warn(f"artifact {wish.name!r}: left out {len(left_out)} of {wish.path}: {', '.join(left_out[:3])}")
        line = ArtifactLine(
            step=wish.step,
            time=self._clock.now_ns() / 1e9,
            name=wish.name,
            type=wish.type,
            version=version,
            path=os.path.relpath(full, root) if reference else f"{folder}/{layout.KEPT}",
            manifest=f"{folder}/{layout.MANIFEST}",
            reference=reference,
            count=len(found),
            size=sum(file.size for file in found),
        )
        self._add_line(line)
        if line.size <= DIGEST_BYTES and not self._hurry.is_set():
            top = full if reference and os.path.isdir(full) else os.path.dirname(full) if reference else None
            base = self.store.path(folder, layout.KEPT) if top is None else top
            self._digest(Digests(self.store, folder, base, found))

    def _publish(self, wish: Wish, found: list[File], left_out: list[str], reference: bool) -> tuple[int, str]:
        """Make the version's folder under a hidden name, then rename it; returns its number and path."""
        name = ids.safe_folder(wish.name)
        parent = f"{layout.ARTIFACTS}/{name}"
        store = self.store
        store.ensure_folder(parent)
        temp = store.temp(parent)[len(store.root) + 1 :]
        store.ensure_folder(temp)
        try:
            if not reference:
                store.ensure_folder(f"{temp}/{layout.KEPT}")
                self._place_all(f"{temp}/{layout.KEPT}", found, left_out, wish.copy)
            version = max((v for v in map(layout.parse_version, store.names(parent)) if v is not None), default=-1) + 1
            while True:
                # A manifest in it makes sure that no rename replaces it.
                manifest = store.path(temp, layout.MANIFEST)
                store.fs.create(manifest, _manifest(wish, version, found, left_out))
                store.fs.sync_folder(store.path(temp))
                folder = layout.version_path(name, version)
                try:
                    store.fs.rename(store.path(temp), store.path(folder))
                    break
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
                store.fs.unlink(manifest)
                version += 1
            store.fs.sync_folder(store.path(parent))
            return version, folder
        except BaseException:
            with suppress(OSError):
                store.remove(temp)
            raise

    def _place_all(self, folder: str, found: list[File], left_out: list[str], copy: bool) -> None:
        made = {folder}
        for file in list(found):
            inner = os.path.dirname(file.name)
            target = f"{folder}/{inner}" if inner else folder
            if target not in made:
                self.store.ensure_folder(target)
                made |= {folder, target, *(f"{folder}/{inner[:i]}" for i, c in enumerate(inner) if c == "/")}
            problem = self._place(file, self.store.path(folder, file.name), copy)
            if problem:
                found.remove(file)
                left_out.append(f"{file.name} ({problem})")
        if not found:
            raise ValueError(f"it holds no file that can be read{_some(left_out)}")
        for path in sorted(made):
            self.store.fs.sync_folder(self.store.path(path))

    def _place(self, file: File, target: str, copy: bool) -> str:
        """Link or copy one file; why it was left out, or nothing."""
        fs = self.store.fs
        try:
            opened = fs.open(file.source)
        except OSError as error:
            return error.strerror or "unreadable"
        try:
            if not copy:
                try:
                    fs.link(file.source, target)
                except OSError as error:
                    if error.errno not in NO_LINKS:
                        raise
                    copy = True
            if copy:
                fs.copy(opened, target, file.size)
            if not file.is_same(opened):
                fs.unlink(target)
                return "it is being written to"
        finally:
            os.close(opened)
        return ""

    def _digest(self, digests: Digests) -> None:
        """Take digests piece by piece, behind what else waits."""

        def work() -> None:
            if self._hurry.is_set():
                return
            if digests.run(lambda: self._hurry.is_set() or self._background.has_waiting()):
                if digests.problem:
                    self._warn(f"{self.store.root}: {digests.folder}: no digests: {digests.problem}")
            else:
                self._background.put(0, work, always=True)

        self._background.put(0, work, always=True)


def _manifest(wish: Wish, version: int, found: list[File], left_out: list[str]) -> bytes:
    files = [{"name": file.name, "size": file.size} for file in found]
    head = {"protocol": PROTOCOL, "name": wish.name, "type": wish.type, "version": version}
    return codec.encode_record({**head, "files": files, "left_out": left_out})


def _some(left_out: list[str]) -> str:
    return f" (left out: {', '.join(left_out[:3])})" if left_out else ""
