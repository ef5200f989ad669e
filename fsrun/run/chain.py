"""Single steps on the chain of sessions of a job (protocol.md 4): read a lock or an end, close, take the fence.

Each step may be done by anyone at any time and twice; the order of the steps is decided in ``session``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from fsrun.core import codec, layout, sessions
from fsrun.core.layout import JobFile
from fsrun.core.records import End, Holder, Lock, rfc3339
from fsrun.core.sessions import Chain, CompleteLines
from fsrun.core.versions import decode_lock
from fsrun.disk.clock import Clock
from fsrun.disk.footer import consumed_by
from fsrun.disk.fs import FileSystem, require_file
from fsrun.disk.store import Store

Counted = Callable[[FileSystem, str], Mapping[str, int]]
"""``(fs, run folder)`` -> bytes that a data.parquet there has consumed, by path in the run folder."""

_PIECE = 4 << 20


def jobs_of(run_dir: str) -> str:
    """Absolute path of the folder that holds the sessions of a run."""
    return f"{run_dir}/{layout.JOBS}"


def look(fs: FileSystem, run_dir: str, job: str) -> Chain:
    """The chain of a job, from a fresh listing; ``FileNotFoundError`` where the run has no ``jobs/``."""
    return sessions.look(fs.names(jobs_of(run_dir)), job)


def read_lock(store: Store, job: str, session: int) -> Lock | None:
    """The lock of a session that a listing has shown; None: not (yet) readable.

    Raises ``InvalidError`` for a lock that this version must not act upon.
    """
    path = layout.join(layout.JOBS, layout.lock_name(job, session))
    value = store.record(path)
    return None if value is None else decode_lock(value, store.path(path))


def read_end(store: Store, job: str, session: int) -> End | None:
    """The end of a session that a listing has shown; None: not (yet) readable."""
    path = layout.join(layout.JOBS, layout.end_name(job, session))
    value = store.record(path)
    return None if value is None else End.from_json(value, store.path(path))


def put_end(store: Store, end: End) -> End | None:
    """Put an end unless there is one; returns the one that stands, or None where that cannot be read yet.

    After a crash: the session has its end or has not; a second try is free.
    """
    if store.put_if_absent(layout.JOBS, layout.end_name(end.job, end.session), codec.encode_record(end.to_json())):
        return end
    return read_end(store, end.job, end.session)


def close_session(
    fs: FileSystem,
    clock: Clock,
    run_dir: str,
    job: str,
    session: int,
    *,
    beats: Iterable[JobFile] = (),
    reason: str,
    found_by: Holder,
) -> bool:
    """Close somebody else's session, as a verdict or a proof of death allows (protocol.md 4).

    ``beats``: the very beats that were watched (none where no beat stands). ``reason``: "expired" or "proved dead".
    True: the session has its end, whoever put it. False: the holder has moved on; watch again. Raises ``OSError``
    where the folder cannot be used; what was done by then is finished by the next who looks.

    After a crash: the beat is taken and the end may be missing, which anyone may put at once.
    """
    store = Store(fs, run_dir, job, session)
    for beat in beats:
        if not _take(fs, run_dir, beat):
            return False
    put_end(
        store,
        End(
            job=job,
            session=session,
            status="crashed",
            reason=reason,
            ended=rfc3339(clock.now_ns()),
            found_by=found_by.to_json(),
        ),
    )
    sweep(fs, run_dir, sessions.leftovers(look(fs, run_dir, job), None))
    return True


def _take(fs: FileSystem, run_dir: str, beat: JobFile) -> bool:
    """Take a beat away: a compare-and-swap against its holder, who renames the same name."""
    jobs = jobs_of(run_dir)
    taken = sessions.taken_name(beat)
    try:
        fs.rename(f"{jobs}/{sessions.beat_name(beat)}", f"{jobs}/{taken}")
    except OSError:
        return taken in fs.names(jobs)
    return True


def sweep(fs: FileSystem, run_dir: str, names: Iterable[str]) -> None:
    """Remove names of ``jobs/`` that nobody needs; what cannot be removed is left for the next."""
    for name in names:
        with suppress(OSError):
            fs.unlink(f"{jobs_of(run_dir)}/{name}")


def fence_of(store: Store, job: str, session: int, counted: Counted | None) -> dict[str, int]:
    """The fence over a closed session as another process states it: complete lines, read afresh, up to the first NUL.

    Never less than what the session's end or a data.parquet has counted (``counted``; None: by the one that is there).
    Reads in pieces; memory stays flat.
    """
    end = read_end(store, job, session)
    ended = end.sizes if end is not None else {}
    listed: dict[str, set[str]] = {"": set(store.names(""))}
    taken: Mapping[str, int] = {}
    if layout.DATA in listed[""]:
        taken = counted(store.fs, store.root) if counted else _consumed(store, job, session)
    complete: dict[str, int] = {}
    for folder, name in layout.session_logs(job, session):
        if name in _listing(store, folder, listed):
            path = layout.join(folder, name)
            counts = max(ended.get(path, 0), taken.get(path, 0))
            complete[path] = measure_log(store.fs, store.path(path), counts).size
    return sessions.plan_fence(job, session, complete, ended, taken)


def _consumed(store: Store, job: str, session: int) -> Mapping[str, int]:
    """What the data.parquet of this run has consumed; that of another run (a mixed-up copy) says nothing here."""
    lock = read_lock(store, job, session)
    return consumed_by(store.fs, store.root, {} if lock is None else {layout.session_key(job, session): lock.token})


def _listing(store: Store, folder: str, listed: dict[str, set[str]]) -> set[str]:
    """Names in a folder, each listed once, and never one that its parent's listing has not shown."""
    if folder not in listed:
        parent, _, name = folder.rpartition("/")
        listed[folder] = set(store.names(folder)) if name in _listing(store, parent, listed) else set()
    return listed[folder]


def measure_log(fs: FileSystem, path: str, start: int = 0) -> CompleteLines:
    """Look through a log from byte ``start`` on, in pieces: it may be larger than memory, or say that it is.

    Raises ``OSError`` where it cannot be read, or is no file.
    """
    lines = CompleteLines(start)
    descriptor = fs.open(path)
    try:
        require_file(descriptor, path)
        while (piece := os.pread(descriptor, _PIECE, lines.read)) and lines.feed(piece):
            pass
    finally:
        os.close(descriptor)
    return lines


def own_end(end: End, lock: Lock, clock: Clock) -> End:
    """An end as the holder of ``lock`` puts it: marked as its own, with the sizes of this session's logs alone."""
    own = {layout.join(*parts) for parts in layout.session_logs(lock.job, lock.session)}
    return replace(
        end,
        session=lock.session,
        token=lock.token,
        ended=rfc3339(clock.now_ns()),
        sizes={path: size for path, size in end.sizes.items() if path in own},
    )
