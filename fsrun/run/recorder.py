"""Media, tables and artifacts of one session: files first, then the line of the index that names them.

Does: queues what callers hand in, bounded; has it encoded and written by a thread; gives the session the sizes of the
indexes; ends within a limit. Leaves to others: what is recorded (``media``, ``tables``, ``artifacts``), the queue
(``background``), lines (``indexlog``).

Tables come as bytes: pyarrow is C++, and a daemon thread in it while the interpreter shuts down aborts the process.

protocol.md: 2 (tree), 6.10 to 6.12 (index lines), 9 (files before lines).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from fsrun.core import ids, layout
from fsrun.core.indexes import Line, MediaLine, TableLine, type_of
from fsrun.disk.clock import Clock
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import Store
from fsrun.run.artifacts import Artifacts
from fsrun.run.background import Background
from fsrun.run.indexlog import IndexLog
from fsrun.run.media import Draft, is_changed

MAX_WAITING = 512
"""Images, sounds, videos, texts and tables that wait at most."""
MAX_BYTES = 64 << 20
"""Memory that they take at most, unless a single one is larger."""


class Recorder:
    """What one session records besides scalars. ``add`` and the rest may be called from any thread."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        run_dir: str,
        job: str,
        session: int,
        warn: Callable[[str], None],
        is_protected: Callable[[], bool] = lambda: True,
    ) -> None:
        self._clock = clock
        self._run_dir = run_dir
        self._warn = warn
        self._store = Store(fs, run_dir, job, session)
        self._numbers = itertools.count()
        self._dropped = 0
        self._made: set[str] = set()

        def index(folder: str) -> IndexLog:
            return IndexLog(fs, run_dir, folder, job, session, clock.monotonic, is_protected)

        self._indexes = {folder: index(folder) for folder in layout.INDEXES}
        self._media = Background(
            f"fsrun-media-{job}",
            lambda: self._write_lines(layout.MEDIA, layout.TABLES),
            self._say,
            max_items=MAX_WAITING,
            max_bytes=MAX_BYTES,
        )
        self._artifacts = Background(
            f"fsrun-artifacts-{job}",
            lambda: self._write_lines(layout.ARTIFACTS),
            self._say,
            max_items=MAX_WAITING,
            max_bytes=1 << 60,
        )
        self.artifacts = Artifacts(self._store, clock, self._artifacts, self._indexes[layout.ARTIFACTS].add, warn)

    def has_room(self, size: int) -> bool:
        """Whether something of ``size`` bytes would be taken; counts what is not, with one warning."""
        if self._media.has_room(size):
            return True
        self._drop("the queue is full")
        return False

    def add_medium(self, kind: str, tag: str, draft: Draft, step: int, caption: str | None) -> None:
        """Record a draft. Returns at once; what finds no room is dropped, with one warning.

        After a crash: the file with its line, or without it, or nothing but a hidden name.
        """
        now = self._clock.now_ns() / 1e9

        def line(path: str | None, size: int) -> Line:
            return MediaLine(
                step=step,
                time=now,
                kind=kind,
                tag=tag,
                type=draft.type,
                path=path,
                size=size,
                text=draft.text,
                caption=caption,
                info=draft.info,
            )

        place = layout.MEDIA, tag, f"{kind} {tag!r}"
        if not self._media.put(draft.size, lambda: self._record(place, draft, step, line)):
            draft.close()
            self._drop("the queue is full")

    def add_table(self, name: str, data: bytes, rows: int, columns: list[dict[str, Any]], step: int) -> None:
        """Record a table, as the bytes of its file. Returns at once. After a crash: as ``add_medium``."""
        now = self._clock.now_ns() / 1e9

        def line(path: str | None, size: int) -> Line:
            return TableLine(step=step, time=now, name=name, path=str(path), size=size, rows=rows, columns=columns)

        draft = Draft(len(data), type_of(".parquet"), ".parquet", encode=lambda _: data)
        place = layout.TABLES, name, f"table {name!r}"
        if not self._media.put(draft.size, lambda: self._record(place, draft, step, line)):
            self._drop("the queue is full")

    def _record(
        self, place: tuple[str, str, str], draft: Draft, step: int, line: Callable[[str | None, int], Line]
    ) -> None:
        """In the thread: the file, durable, then its line."""
        folder, name, what = place
        try:
            path, size = None, draft.size
            if draft.text is None:
                path, size = self._put_file(f"{folder}/{ids.safe_folder(name)}", draft, step)
            else:
                self._ensure(folder)
            self._indexes[folder].add(line(path, size))
        except Exception as error:  # noqa: BLE001 - nothing of this may reach the user's program
            self._say(f"{what} was not kept: {error}")
        finally:
            draft.close()

    def _put_file(self, folder: str, draft: Draft, step: int) -> tuple[str, int]:
        """Make the file under a hidden name, then rename it; its own name is nobody else's."""
        store = self._store
        data = None if draft.encode is None else draft.encode(draft)
        name = layout.payload_name(step, store.job, store.session, next(self._numbers), draft.suffix)
        self._ensure(folder)
        temp = store.temp(folder)
        try:
            if data is not None:
                size = len(data)
                store.fs.create(temp, data)
            else:
                assert draft.source is not None
                assert draft.facts is not None
                size = draft.facts.st_size
                store.fs.copy(draft.source, temp, size)
                if is_changed(draft.source, draft.facts):
                    raise ValueError("it was written to while it was copied")
            store.fs.rename(temp, store.path(folder, name))
        except BaseException:
            self._forget(temp)
            raise
        store.fs.sync_folder(store.path(folder))
        return f"{folder}/{name}", size

    def _forget(self, temp: str) -> None:
        try:
            self._store.fs.unlink(temp)
        except OSError:
            self._made.clear()  # perhaps the folder is not there either

    def _ensure(self, folder: str) -> None:
        if folder not in self._made:
            self._store.ensure_folder(folder)
            self._made.add(folder)

    def _write_lines(self, *folders: str) -> bool:
        done = True
        for folder in folders:
            try:
                done = self._indexes[folder].store() and done
            except OSError as error:
                done = False
                self._made.clear()
                self._say(f"the index of {folder} cannot be written ({error.strerror or error}): its lines wait")
        return done

    def _drop(self, why: str) -> None:
        self._dropped += 1
        if self._dropped == 1:
            self._say(
                f"an image, sound, video, text or table was dropped: {why}; the end of the run counts all of them"
            )

    def _say(self, message: str) -> None:
        self._warn(f"{self._run_dir}: {message}")

    # What the session asks, as of the log of scalars.

    def acknowledged(self) -> dict[str, int]:
        """Bytes of each index that are durable; nothing more counts in them until ``reopen``."""
        sizes: dict[str, int] = {}
        for index in self._indexes.values():
            sizes |= index.acknowledged()
        return sizes

    def reopen(self, session: int) -> None:
        """Go on in another session of the same process; lines that were in doubt are written again there."""
        old = self._store
        self._store = self.artifacts.store = Store(old.fs, old.root, old.job, session)
        for index in self._indexes.values():
            index.reopen(session)
        self._wake()

    def moved(self) -> None:
        """The run folder is said to be gone: see whether the indexes are."""
        for index in self._indexes.values():
            index.verify()
        self._wake()

    def _wake(self) -> None:
        for background in (self._media, self._artifacts):
            background.wake()

    def flush(self, timeout: float) -> bool:
        """Wait until all that was recorded is durable, digests apart."""
        done = self._media.drain(timeout) and self.artifacts.settle(timeout)
        return done and self._indexes[layout.ARTIFACTS].wait(timeout)

    def close(self, timeout: float) -> bool:
        """Finish what was begun within ``timeout`` seconds; says what is lost. Never raises."""
        self.artifacts.hurry()
        begin = self._clock.monotonic()
        done = self._media.drain(timeout)
        done = self._artifacts.drain(max(0.0, timeout - (self._clock.monotonic() - begin))) and done
        self._dropped += self._media.stop()
        left = self._artifacts.stop() + sum(index.waiting for index in self._indexes.values())
        for index in self._indexes.values():
            index.stop()
            if done:
                index.close()
        if self._dropped:
            self._say(f"{self._dropped} images, sounds, videos, texts or tables were dropped in all")
        if not done or left:
            self._say("not all that was recorded besides scalars could be written when the run ended")
        return done

    def fenced(self) -> None:
        """A newer session is open: nothing more goes to the run folder."""
        self.artifacts.hurry()
        for background in (self._media, self._artifacts):
            background.stop()
        for index in self._indexes.values():
            index.stop()
