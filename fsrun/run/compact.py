"""Build ``data.parquet`` (protocol.md 6.9): all scalars of all jobs in one file, beside the logs, which stay.

May be done by anyone, at any time, by several at once: the file says what it consumed, readers add the rest, and one
that does not fit the fences is ignored. Views and records of the run are not touched.
"""

from __future__ import annotations

from dataclasses import replace

from fsrun.core import layout, sessions
from fsrun.core.errors import InvalidError
from fsrun.core.ids import MAIN
from fsrun.disk.fs import FileSystem, LocalFileSystem
from fsrun.disk.store import Store


def compact(run_dir: str, fs: FileSystem | None = None) -> str | None:
    """Bring the data.parquet of a run up to date; returns its path, or None where the run has no scalars.

    For a live run too: it is a cache then. What is there already is kept as long as it may be used. Raises ``OSError``
    where the folder cannot be written, ``InvalidError`` where this version must not write to the run; the old file
    stays.

    After a crash: the old file or the new one, and perhaps a hidden temporary.
    """
    from fsrun.disk.segments import encode
    from fsrun.run.load import Loader, list_folder

    fs = fs or LocalFileSystem()
    loader = Loader(fs, run_dir)
    snapshot = loader.load()
    for lock, why in loader.refusals.items():
        raise InvalidError(f"{run_dir}/{lock}: {why}")
    path = f"{run_dir}/{layout.DATA}"
    if snapshot.compacted:
        return path
    if not snapshot.table.num_rows and snapshot.base is None:
        return None
    counted = loader.rules(snapshot).apply(snapshot.table)
    consumed = replace(
        snapshot.consumed,
        outcomes=loader.handed_over(snapshot),
        plain=counted.num_rows == snapshot.table.num_rows and counted.equals(snapshot.table),
    )
    chain = sessions.look(list_folder(fs, f"{run_dir}/{layout.JOBS}"), MAIN)
    store = Store(fs, run_dir, MAIN, max(chain.highest, 1))
    store.replace("", layout.DATA, encode(snapshot.table, consumed).to_pybytes())
    return path


def compact_if_last(run_dir: str, fs: FileSystem | None = None) -> str | None:
    """Compact if every job of the run has ended: called by each job after its end was put, so that the last one does.

    Returns the path, or None where a job is open or there are no scalars. Raises ``OSError``, as ``compact``.

    After a crash: as ``compact``; the next who ends a job, or a person, does it.
    """
    fs = fs or LocalFileSystem()
    return compact(run_dir, fs) if all_closed(run_dir, fs) else None


def all_closed(run_dir: str, fs: FileSystem) -> bool:
    """Whether every job of the run has ended."""
    return all(chain.closed for chain in sessions.look_all(fs.names(f"{run_dir}/{layout.JOBS}")).values())


def is_current(run_dir: str, fs: FileSystem | None = None) -> str | None:
    """Why the data.parquet of a run is not what compaction would leave; None where it is, or where none is due."""
    from fsrun.run.load import Loader

    loader = Loader(fs or LocalFileSystem(), run_dir)
    snapshot = loader.load()
    if snapshot.compacted or (snapshot.base is None and not snapshot.table.num_rows):
        return None
    if snapshot.base is not None:
        return "lacks what was logged or evaluated since it was made"
    if layout.DATA not in loader.fs.names(run_dir):
        return "is missing"
    reasons = [p.reason for p in loader.problems.found if p.path == layout.DATA]
    return reasons[0] if reasons else "consumed more of a log than a fence allows"
