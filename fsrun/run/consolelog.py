"""The log of a console in the pump process: a buffer of limited size, and one thread that writes what passes it.

Does: takes pieces of output without ever waiting, renders them, appends the lines once a second. Where the run folder
hangs or is full, lines beyond the buffer are left out, and one line says how many. Leaves to others: the output itself
(``relay``), the rendering (``core.render``). Loads nothing beyond the standard library.

protocol.md: 6.15 (console).
"""

from __future__ import annotations

import errno
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from fsrun.core.render import Renderer

if TYPE_CHECKING:
    from fsrun.disk.fs import LogFile

ROOM = 16 << 20
"""Bytes of output that wait for the folder at most."""
LIMIT = 1 << 30
"""Bytes of a session's log at most."""
WRITE_INTERVAL = 1.0
"""Seconds within which a line is written."""
SETTLE_INTERVAL = 0.5
RETRY = 1.0
_SOON = 1 << 18
"""Bytes that are rendered or written without waiting for more."""

_Piece = tuple[int, bytes]
_MARK = -1
"""Channel number of the count of lines that were left out."""


class ConsoleLog:
    """The log at ``path`` of the output of ``channels`` channels; ``append`` opens it, ``note`` is told of an error."""

    def __init__(self, append: Callable[[str], LogFile], path: str, channels: int, note: Callable[[str], None]) -> None:
        self._append = append
        self._path = path
        self._note = note
        self._renderers = [Renderer() for _ in range(channels)]
        self._change = threading.Condition()
        self._queue: deque[_Piece] = deque()
        self._bytes = self._lost = 0
        self._gap = self._closing = self._closed = self._stopped = False
        self._speaker = 0
        self._out = b""
        self._file: LogFile | None = None
        self._file_path = path
        self._size = 0
        self._unsynced = False
        self._written_at = self._synced_at = 0.0

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def put(self, channel: int, data: bytes) -> None:
        """Take output of a channel; what does not fit is counted and left out. Never waits for the folder.

        Once something was left out, more is taken only when half of the room is free: one gap, not many.
        """
        with self._change:
            if self._closing:
                return
            if self._bytes + len(data) > (ROOM // 2 if self._gap else ROOM):
                self._gap = True
                self._lost += data.count(b"\n")
                return
            self._take_mark()
            wake = not self._queue or self._bytes < _SOON <= self._bytes + len(data)
            self._queue.append((channel, data))
            self._bytes += len(data)
            if wake:
                self._change.notify_all()

    def _take_mark(self) -> None:
        if self._gap:
            self._queue.append((_MARK, b"[fsrun: %d lines were not recorded]\n" % max(1, self._lost)))
            self._gap, self._lost = False, 0

    def move(self, path: str) -> None:
        """Go on in another file, the log of the next session."""
        with self._change:
            self._path = path

    def stop(self) -> None:
        """Record nothing more, nor what waits: another process has this job."""
        with self._change:
            self._stopped = self._closing = True
            self._queue.clear()
            self._change.notify_all()

    def end(self) -> None:
        """Nothing more comes: write what waits, and close."""
        with self._change:
            self._take_mark()
            self._closing = True
            self._change.notify_all()

    def wait(self, timeout: float) -> bool:
        """Wait until the log is closed after ``end`` or ``stop``; whether it is."""
        with self._change:
            return self._change.wait_for(lambda: self._closed, timeout)

    def _run(self) -> None:
        try:
            try:
                self._open()
            except OSError as error:
                self._note(error.strerror or str(error))
            while self._step():
                pass
        except Exception as error:  # noqa: BLE001 - the relay goes on whatever is wrong here
            self._note(f"{type(error).__name__}: {error}")
        with self._change:
            self._closing = self._closed = True
            self._queue.clear()
            self._change.notify_all()

    def _step(self) -> bool:
        """Wait for output, render it, write; False when the log is closed."""
        batch, last = self._next()
        now = time.monotonic()
        text = "".join(self._render(channel, data, now) for channel, data in batch)
        text += "".join(r.end() if last else r.settle(now) for r in self._renderers)
        self._out += text.encode("utf-8", "backslashreplace")
        if last or len(self._out) >= _SOON or now - self._written_at >= WRITE_INTERVAL:
            self._write_out()
        if self._unsynced and (last or now - self._synced_at >= WRITE_INTERVAL):
            self._sync()
        with self._change:
            self._bytes -= sum(len(data) for channel, data in batch if channel != _MARK)
        if last:
            self._close_file()
        return not last

    def _next(self) -> tuple[list[_Piece], bool]:
        """What is to be rendered now, and whether it is the last; waits a little for more where it is little."""
        with self._change:
            idle = not self._out and not self._unsynced and not any(r.waits for r in self._renderers)
            self._change.wait_for(lambda: self._queue or self._closing, None if idle else SETTLE_INTERVAL)
            if idle:
                self._change.wait_for(lambda: self._bytes >= _SOON or self._closing, SETTLE_INTERVAL)
            batch: list[_Piece] = []
            size = 0
            while self._queue and size < _SOON:
                batch.append(self._queue.popleft())
                size += len(batch[-1][1])
            return batch, self._closing and not self._queue

    def _render(self, channel: int, data: bytes, now: float) -> str:
        if channel == _MARK:
            return "".join(r.end() for r in self._renderers) + data.decode()
        before, self._speaker = self._speaker, channel
        way = self._renderers[before].give_way(now) if before != channel else ""
        return way + self._renderers[channel].feed(data, now)

    def _write_out(self) -> None:
        """Write what is rendered; after an error try again until nothing more comes, and then once."""
        told = False
        while self._out and not self._stopped:
            last = self._closing
            try:
                self._write_once()
            except OSError as error:
                if not told:
                    self._note(error.strerror or str(error))
                told = True
                if last:
                    self._out = b""
                with self._change:
                    self._change.wait_for(lambda: self._closing, RETRY)
        self._written_at = time.monotonic()

    def _open(self) -> LogFile:
        """The log of the session that it is for now."""
        if self._file is None or self._file_path != self._path:
            self._close_file()
            self._file_path = self._path
            self._file = self._append(self._path)
            self._size = 0
        return self._file

    def _write_once(self) -> None:
        file = self._open()
        if self._size >= LIMIT:
            self._out = b""
            return
        if self._size + len(self._out) > LIMIT:
            self._out = self._out[: LIMIT - self._size] + b"\n[fsrun: the log ends here: it has reached its limit]\n"
        while self._out:
            written = file.write(self._out)
            self._size += written
            self._out = self._out[written:]
            self._unsynced = True

    def _sync(self) -> None:
        self._unsynced, self._synced_at = False, time.monotonic()
        try:
            if self._file is not None:
                self._file.sync()
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # nothing there that could be made durable
                self._note(error.strerror or str(error))

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                self._note(error.strerror or str(error))
