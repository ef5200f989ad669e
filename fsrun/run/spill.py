"""Lines that the run folder would not take, in a named local file (protocol.md 4.9), and their way back.

Does: writes a spill of one session; finds the spills of a run on this host, whatever became of the run's path; imports
them. Leaves to others: when to spill and writing back by the living process (``outbox``), whether a session is closed.

A spill is ``<folder>/<run folder>.<job>.<n>.<token>.s<i>.jsonl``, with a record beside it that names the run's path.
The folder is ``$FSRUN_SPILL``, or ``fsrun-spill-<uid>`` below the folder for temporary files.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from fsrun.core import codec, layout
from fsrun.core.errors import InvalidError
from fsrun.core.lines import complete_prefix
from fsrun.core.records import PROTOCOL, Record, _a, _int, _text
from fsrun.core.scalars import Source, read_sessions, sources
from fsrun.core.versions import decode_lock
from fsrun.disk.fs import FileSystem, LocalFileSystem, LogFile
from fsrun.disk.store import Store, read_record


@dataclass(frozen=True, slots=True, kw_only=True)
class SpillNote(Record):
    """What the record beside a spill says."""

    KIND: ClassVar[str] = "spill note"
    protocol: str = _a(_text, PROTOCOL)
    run_dir: str = _a(_text)
    """Absolute path of the run folder when the spill was made: for people, and where nothing else is known."""
    job: str = _a(_text)
    session: int = _a(_int)
    token: str = _a(_text)
    """The session's token: what ties the spill to the run, also when the run was moved."""
    piece: int = _a(_int)


def default_folder() -> str:
    """The folder for spills on this host: ``$FSRUN_SPILL`` (absolute), or one a user in ``$TMPDIR`` (or ``/tmp``)."""
    named = os.environ.get("FSRUN_SPILL", "")
    if os.path.isabs(named):
        return named
    temporary = next((p for k in ("TMPDIR", "TEMP", "TMP") if os.path.isabs(p := os.environ.get(k, ""))), "/tmp")
    return f"{temporary.rstrip('/')}/{layout.spill_folder(str(os.getuid()))}"


class SpillFile:
    """One spill that this process writes, and reads back when the run folder works again.

    ``size`` bytes of whole lines stand in it, the first ``done`` of which are in the log already.
    """

    __slots__ = ("_file", "_fs", "_reader", "done", "note_path", "path", "size")

    def __init__(self, fs: FileSystem, folder: str, note: SpillNote) -> None:
        """Make the note, then the empty file; raises ``OSError`` where that is not possible.

        After a crash: perhaps a note without a spill, which means nothing.
        """
        run = os.path.basename(note.run_dir.rstrip("/"))
        name = layout.spill_file(run, note.job, note.session, note.token, note.piece)
        self._fs = fs
        self.path = f"{folder}/{name}"
        self.note_path = f"{folder}/{layout.spill_note(name)}"
        self.size = self.done = 0
        with suppress(FileExistsError):
            fs.mkdir(folder)
        if os.lstat(folder).st_uid != os.getuid():
            raise PermissionError(errno.EPERM, "the folder for spills belongs to somebody else", folder)
        fs.create(self.note_path, codec.encode_record(note.to_json()))
        fs.create(self.path, b"")
        self._file: LogFile | None = fs.append(self.path)
        # Held open, so that a cleaner of temporary files does not take away what is not yet written back.
        self._reader = fs.open(self.path)

    def append(self, data: bytes) -> None:
        """Append whole lines; after an ``OSError`` none of them is there.

        After a crash: what was appended before, and perhaps a part of ``data`` whose last line may be torn.
        """
        file = self._opened()
        try:
            sent = 0
            while sent < len(data):
                taken = file.write(data[sent:] if sent else data)
                if taken <= 0:
                    raise OSError(errno.EIO, "the system took no bytes", self.path)
                sent += taken
        except OSError:
            file.truncate(self.size)
            raise
        self.size += len(data)

    def sync(self) -> None:
        """Make what was appended durable."""
        self._opened().sync()

    def _opened(self) -> LogFile:
        if self._file is None:
            raise OSError(errno.EBADF, "the spill is closed", self.path)
        return self._file

    def read(self, limit: int) -> bytes:
        """Whole lines from ``done`` on, about ``limit`` bytes of them (more where one line is longer)."""
        while True:
            data = os.pread(self._reader, min(limit, self.size - self.done), self.done)
            end = data.rfind(b"\n") + 1
            if end:
                return data[:end]
            if self.done + limit >= self.size:
                raise OSError(errno.EIO, "the spill is shorter than what was written", self.path)
            limit *= 2

    def close(self) -> None:
        """Close the file; what is in it stays for an import."""
        file, self._file = self._file, None
        if file is not None:
            os.close(self._reader)
            with suppress(OSError):
                file.close()

    def remove(self) -> None:
        """Remove the spill: all of it is in the log. After a crash: it, or its note, stands there still."""
        self.close()
        for path in (self.path, self.note_path):
            with suppress(OSError):
                self._fs.unlink(path)


@dataclass(frozen=True, slots=True)
class Found:
    """A spill that stands on this host: its path and what its name says."""

    path: str
    run_dir: str
    """Where its run was when it was made; empty where its note is missing."""
    job: str
    session: int
    token: str
    piece: int


def find_spills(
    run_dir: str, *, fs: FileSystem, folder: str | None = None, local: FileSystem | None = None
) -> list[Found]:
    """Spills of the run in ``run_dir`` that stand on this host, by job, session and piece. Writes nothing.

    They are told by the token of their session's lock, so a run that was moved or copied is found too.
    """
    local = local or LocalFileSystem()
    store = Store(fs, run_dir, "", 0)
    tokens: dict[tuple[str, int], str] = {}
    found = []
    for spill in _all_spills(local, folder or default_folder()):
        key = (spill.job, spill.session)
        if key not in tokens:
            lock = store.record(f"{layout.JOBS}/{layout.lock_name(*key)}") or {}
            tokens[key] = str(lock.get("token", ""))
        if tokens[key] == spill.token:
            found.append(spill)
    return sorted(found, key=lambda s: (s.job, s.session, s.piece))


def _all_spills(local: FileSystem, folder: str) -> Iterator[Found]:
    try:
        names = set(local.names(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in sorted(names):
        parsed = layout.parse_spill_file(name)
        if parsed is None:
            continue
        note = _read_note(local, f"{folder}/{layout.spill_note(name)}")
        yield Found(f"{folder}/{name}", note.run_dir if note else "", *parsed[1:])


def _read_note(local: FileSystem, path: str) -> SpillNote | None:
    try:
        value = read_record(local, path)
        return None if value is None else SpillNote.from_json(value)
    except (OSError, InvalidError):
        return None


def import_spill(
    run_dir: str, spill: Found, *, fs: FileSystem, local: FileSystem | None = None
) -> tuple[str | None, int]:
    """Bring one spill of a closed session into its run, then remove it; (its path in the run or None, lines brought).

    Lines that count already are left out, so a spill that the process wrote back before it died, or that was
    imported before, brings nothing and is removed. The session must be closed: its own process, where it lives, writes
    back by itself, and goes on with this file. Raises ``OSError`` or ``InvalidError``; then the spill stands as before.

    After a crash: the piece is in the run or not, and the spill still stands; importing it again ends the same.
    """
    local = local or LocalFileSystem()
    store = Store(fs, run_dir, spill.job, spill.session)
    data = local.read(spill.path)
    missing = dict.fromkeys(line for line in data[: complete_prefix(data)].split(b"\n") if line)
    _drop_counted(store, spill, missing)
    target = None
    if missing:
        target = _publish(store, spill, b"\n".join(missing) + b"\n")
    for path in (spill.path, f"{os.path.dirname(spill.path)}/{layout.spill_note(os.path.basename(spill.path))}"):
        with suppress(FileNotFoundError):
            local.unlink(path)
    return target, len(missing)


def _publish(store: Store, spill: Found, data: bytes) -> str:
    piece = spill.piece
    while True:
        name = layout.spill_name(spill.job, spill.session, piece)
        if store.put_if_absent(layout.SCALARS, name, data):
            return f"{layout.SCALARS}/{name}"
        piece += 1  # another spill of the session was imported under this number


def _drop_counted(store: Store, spill: Found, missing: dict[bytes, None]) -> None:
    """Take out of ``missing`` what counts already: the same bytes in a log or piece of this or a later session.

    A line carries the time of its call, so equal bytes are the same call.
    """
    locks = []
    for name in store.names(layout.JOBS):
        parsed = layout.parse_job_file(name)
        if parsed and parsed.kind == "lock" and parsed.job == spill.job and parsed.session >= spill.session:
            record = store.record(f"{layout.JOBS}/{name}")
            if record is not None:
                locks.append(decode_lock(record, store.path(layout.JOBS, name)))
    sessions = read_sessions(locks)
    for source in sources(store.names(layout.SCALARS)):
        if source.job == spill.job and source.session >= spill.session and missing:
            _drop_lines(store, source, sessions.limit(source), missing)


def _drop_lines(store: Store, source: Source, limit: int | None, missing: dict[bytes, None]) -> None:
    from fsrun.disk.logs import read_pieces  # loads pyarrow, which a writer does not need

    for piece in read_pieces(store.fs, store.path(source.path), 0, limit):
        for line in piece.split(b"\n"):
            missing.pop(line, None)
