"""The folder that snapshots are written in before they are handed over, and what killed trainers left there.

    <dir>/.fsrun-<run>.<job>.<n>.<token>/     the snapshots of one process, which nobody else touches
        owner.json                            the run's path, and the process
        .part-<name>/                         being written
        <name>/                               whole, on its way into the queue

Does: makes and removes these names; writes one snapshot; space. Leaves to others: what is written (``layout``,
``buffers``), handing over (``exporter``).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fsrun.adapters.weights import MANIFEST
from fsrun.core import codec, layout
from fsrun.core.errors import InvalidError
from fsrun.core.ids import is_job, is_token, parse_number
from fsrun.core.records import Holder
from fsrun.core.states import SessionState
from fsrun.disk import identity
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import Store, read_record
from fsrun.run import chain

_PREFIX = ".fsrun-"
_OWNER = "owner.json"
_PART = ".part-"
_CHUNK = 16 << 20
_MARGIN = 1 << 20
"""Bytes beyond those of the files that have to be free: blocks and folders take some too."""

Data = Iterable[memoryview | bytes]


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose snapshots stand in a folder."""

    run: str
    """Path of the run folder; empty where only its name is known."""
    name: str
    """Name of the run folder."""
    job: str
    session: int
    token: str
    holder: Holder | None = None


class SessionFolder:
    """The snapshots of one process in ``directory``; made when the first one is written."""

    def __init__(self, fs: FileSystem, directory: str, owner: Owner) -> None:
        self._fs = fs
        self.directory = directory
        self._owner = owner
        self._making = threading.Lock()
        name = f"{_PREFIX}{owner.name}.{layout.session_key(owner.job, owner.session)}.{owner.token}"
        self.path = f"{directory}/{name}"

    def free(self) -> int:
        """Bytes that may still be written there. Raises ``OSError``."""
        os.makedirs(self.directory, exist_ok=True)
        facts = os.statvfs(self.directory)
        return facts.f_bavail * (facts.f_frsize or facts.f_bsize) - _MARGIN

    def write(self, name: str, files: Iterable[tuple[str, Data]], manifest: Callable[[dict[str, int]], bytes],
              moved: Callable[[], None]) -> str:  # fmt: skip
        """Write a snapshot durably, its manifest last; returns its path.

        ``moved`` is called after each piece. Raises ``OSError``; then nothing of it is left, as far as that goes.
        After a crash: a part below the session's hidden name, or the whole; ``sweep`` removes either.
        """
        part, target = f"{self.path}/{_PART}{name}", f"{self.path}/{name}"
        with self._making:
            self._make()
            self._fs.mkdir(part)
        try:
            sizes = {file: self._write_file(f"{part}/{file}", data, moved) for file, data in files}
            self._fs.sync_folder(part)
            self._fs.create(f"{part}/{MANIFEST}", manifest(sizes))
            self._fs.sync_folder(part)
            self._fs.rename(part, target)
        except BaseException:
            remove_tree(self._fs, part)
            raise
        return target

    def remove(self, path: str) -> None:
        """Remove a snapshot that was handed over or is not to be, and the own folder with the last one."""
        remove_tree(self._fs, path)
        with suppress(OSError), self._making:
            if set(self._fs.names(self.path)) <= {_OWNER}:
                remove_tree(self._fs, self.path)

    def _make(self) -> None:
        with suppress(FileExistsError):
            self._fs.mkdir(self.path)
        owner = self._owner
        record = {
            "run": owner.run,
            "job": owner.job,
            "session": owner.session,
            "token": owner.token,
            "holder": owner.holder.to_json() if owner.holder is not None else {},
        }
        with suppress(FileExistsError):
            self._fs.create(f"{self.path}/{_OWNER}", codec.encode_record(record))

    def _write_file(self, path: str, data: Data, moved: Callable[[], None]) -> int:
        """Write and fsync one file; a full disk shows itself at any of write, fsync and close."""
        file, size = self._fs.append(path), 0
        try:
            for block in data:
                for piece in _pieces(block):
                    size += len(piece)
                    while len(piece):
                        piece = piece[file.write(piece) :]  # type: ignore[arg-type]
                    moved()
            file.sync()
        finally:
            file.close()
        return size


def _pieces(block: memoryview | bytes) -> Iterator[memoryview]:
    view = memoryview(block)
    for start in range(0, len(view), _CHUNK):
        yield view[start : start + _CHUNK]


def sweep(fs: FileSystem, own: SessionFolder, run_dir: str) -> list[str]:
    """Remove from the folder what processes left that are gone; returns the names.

    A folder goes where the session that it names is closed and its process is not known to live, where that process is
    proved dead (protocol.md 4.4), and never otherwise. Raises ``OSError``.
    After a crash: some of the files are gone; the next one goes on.
    """
    me, removed = identity.own(), list[str]()
    for name, is_folder in fs.scan(own.directory):
        path = f"{own.directory}/{name}"
        if is_folder and path != own.path:
            owner = _owner_of(fs, path, name, run_dir)
            if owner is not None and _is_over(fs, owner, me):
                remove_tree(fs, path)
                removed.append(name)
    return removed


def _owner_of(fs: FileSystem, path: str, name: str, run_dir: str) -> Owner | None:
    """Whose folder it is, by its record and its name, which must agree; None where nothing can tell."""
    named = parse_name(name)
    if named is None:
        return None
    record: dict[str, Any] | None = None
    with suppress(OSError):
        record = read_record(fs, f"{path}/{_OWNER}")
    if record is None:
        # Its process died before it wrote anything into it.
        return Owner(run_dir, *named) if named[0] == os.path.basename(run_dir) else None
    run = record.get("run")
    if not isinstance(run, str) or os.path.basename(run) != named[0] or record.get("token") != named[3]:
        return None
    holder = record.get("holder")
    with suppress(InvalidError):
        return Owner(run, *named, Holder.from_json(holder if isinstance(holder, dict) else {}))
    return None


def parse_name(name: str) -> tuple[str, str, int, str] | None:
    """Read the name of a session's folder as (run folder, job, session, token)."""
    parts = name.removeprefix(_PREFIX).rsplit(".", 3)
    if not name.startswith(_PREFIX) or len(parts) != 4 or not parts[0]:
        return None
    session = parse_number(parts[2])
    return (parts[0], parts[1], session, parts[3]) if session and is_job(parts[1]) and is_token(parts[3]) else None


def _is_over(fs: FileSystem, owner: Owner, me: Holder) -> bool:
    holder = owner.holder
    if holder is not None and identity.proved_dead(holder, me):
        return True
    if holder is not None and identity.is_alive(holder, me):
        return False  # closed by a false verdict, perhaps, and still writing (protocol.md 4.6)
    try:
        sessions = chain.look(fs, owner.run, owner.job)
        if sessions.state(owner.session) is not SessionState.CLOSED:
            return False
        lock = chain.read_lock(Store(fs, owner.run, owner.job, owner.session), owner.job, owner.session)
    except (OSError, InvalidError):
        return False
    return lock is not None and lock.token == owner.token


def remove_tree(fs: FileSystem, path: str) -> None:
    """Remove a folder of ours with what is in it, as far as that goes."""
    with suppress(OSError):
        for name, is_folder in fs.scan(path):
            if is_folder:
                remove_tree(fs, f"{path}/{name}")
            else:
                with suppress(OSError):
                    fs.unlink(f"{path}/{name}")
        fs.rmdir(path)
