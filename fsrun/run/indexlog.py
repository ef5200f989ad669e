"""The index of one folder (media, tables, artifacts) that a session appends to.

Does: keeps lines until they are durable, in order, through errors and a false verdict (as the log of scalars: the same
``outbox`` and ``log``). Leaves to others: the thread that calls ``store``; the files, which stand before their line.

There is no spill here: a run folder that takes no line takes no files either. Lines wait in memory instead.

protocol.md: 4.7 (fence), 6.10 to 6.12 (index lines).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress

from fsrun.core import codec, layout
from fsrun.core.indexes import Line
from fsrun.disk.fs import FileSystem
from fsrun.run.log import SessionLog
from fsrun.run.outbox import Durable, Outbox
from fsrun.run.spill import SpillFile


class IndexLog:
    """Lines on their way to ``<folder>/<job>.<session>.jsonl``; one thread calls ``store``."""

    def __init__(
        self,
        fs: FileSystem,
        run_dir: str,
        folder: str,
        job: str,
        session: int,
        monotonic: Callable[[], float],
        is_protected: Callable[[], bool],
    ) -> None:
        self._fs = fs
        self._run_dir = run_dir
        self._folder = folder
        self._job = job
        self._is_protected = is_protected
        self._outbox = Outbox(self._log(session), _no_spill, monotonic, is_protected=is_protected)

    def add(self, line: Line) -> None:
        """Take a line whose files are durable. After a crash: it may be missing; then no line names the files."""
        self._outbox.put(codec.encode_line(line.to_line()), 1)

    def store(self) -> bool:
        """Write what waits; whether nothing is left. Raises ``OSError``; then the lines are kept."""
        while self._outbox.store():
            pass
        return not self._outbox.needs_store()

    def wait(self, timeout: float) -> bool:
        """Wait until all lines so far are durable."""
        durable = Durable()
        self._outbox.promise(durable)
        durable.wait(timeout)
        return durable.done

    @property
    def waiting(self) -> int:
        """Lines that are not durable."""
        return self._outbox.put_lines - self._outbox.durable_lines

    def acknowledged(self) -> dict[str, int]:
        """Bytes that are durable, by path; no more counts until ``reopen``, as for scalars."""
        return self._outbox.seal()

    def verify(self) -> None:
        """Have it checked, by the next ``store``, that the index is where it was; what is gone is written again."""
        self._outbox.verify(0.0)

    def reopen(self, session: int) -> None:
        """Go on in another session; what was in doubt is written again there."""
        self._outbox.reopen(self._log(session))

    def stop(self) -> None:
        """Write nothing more."""
        self._outbox.stop()

    def close(self) -> None:
        """Close the file, from the thread that stores or after it."""
        with suppress(OSError):
            self._outbox.close_log()

    def _log(self, session: int) -> SessionLog:
        path = f"{self._folder}/{layout.scalars_name(self._job, session)}"
        return SessionLog(self._fs, self._run_dir, path, self._is_protected)


def _no_spill() -> SpillFile:
    raise OSError(errno.ENOTSUP, "an index has no spill")
