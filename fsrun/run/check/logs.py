"""Checks of the logs: scalars, spills, system files, fences, data.parquet (protocol.md 4.7, 4.9, 6.8, 8)."""

from __future__ import annotations

from fsrun.core import layout
from fsrun.core.ids import parse_number
from fsrun.core.records import End, Lock
from fsrun.core.scalars import Sessions, Source, read_sessions, sources
from fsrun.core.system import parse_samples
from fsrun.disk.logs import LogReader, line_numbers, read_pieces
from fsrun.run.chain import measure_log
from fsrun.run.check.finding import Fix, Picture
from fsrun.run.check.kept import Outcomes
from fsrun.run.check.recorded import check_indexes
from fsrun.run.check.repair import bring_spill, build_data
from fsrun.run.check.tagged import check_tagged
from fsrun.run.spill import find_spills

_MOST = 20
"""Faulty lines of one log that are named one by one."""


def check_logs(picture: Picture, outcomes: Outcomes) -> None:
    """Check every log that a session of the run has, or should not have."""
    held = read_sessions(picture.locks.values())
    done = _done_outcomes(picture)
    complete: dict[str, int] = {}
    folders = set(picture.store.names(""))
    if layout.SCALARS in folders:
        for source in sources(picture.store.names(layout.SCALARS)):
            complete[source.path] = _check_scalars(picture, source, held, done, outcomes)
    for folder in _system_folders(picture, folders):
        for name in picture.store.names(folder):
            _check_system(picture, folder, name, held, complete)
    complete |= check_indexes(picture, held, folders)
    _check_sizes(picture, complete)
    _check_spills(picture)
    _check_data(picture)


def _system_folders(picture: Picture, folders: set[str]) -> list[str]:
    jobs = picture.store.names(layout.SYSTEM) if layout.SYSTEM in folders else []
    return [f"{layout.SYSTEM}/{job}" for job in jobs if job in picture.chains]


def _done_outcomes(picture: Picture) -> set[str]:
    """Keys of all outcomes that stand; whether they are ``done`` is checked where they are read."""
    names = map(layout.parse_outcome_name, picture.store.names(layout.EVALS))
    return {layout.outcome_key(*key) for key in names if key}


def _check_scalars(picture: Picture, source: Source, held: Sessions, done: set[str], outcomes: Outcomes) -> int:
    """Check one log of scalars; returns the bytes of its complete lines."""
    path = source.path
    if not picture.was_opened(source.job, source.session):
        message = f"session {source.session} of job {source.job} was never opened"
        picture.report("error", path, "4", message, "its lock is gone; without it no reader knows the job")
    try:
        found = measure_log(picture.fs, picture.store.path(path))
    except OSError as error:
        picture.report("error", path, "8.2", f"cannot be read: {error.strerror}", "make it readable")
        return 0
    if found.hole is not None:
        message = f"NUL bytes from byte {found.hole} on; nothing after them counts"
        remedy = "the host lost power; what counts is intact"
        picture.report("warning", path, "8.2", message, remedy, line=found.lines + 1)
    elif found.size < found.read and picture.is_closed(source.job, source.session):
        message = f"the last line is cut short ({found.read - found.size} bytes); it does not count"
        picture.report("note", path, "8.2", message, "nothing: its writer was killed", line=found.lines + 1)
    limit = held.limit(source)
    if limit is not None:
        _check_limit(picture, path, found.size, limit)
    # Bytes past a fence are void (protocol.md 4.7), and so are their faults.
    counted = found.size if limit is None else min(limit, found.size)
    tags, keys = _check_lines(picture, source, counted, done)
    check_tagged(picture, source, counted, tags, keys, outcomes)
    return found.size


def _check_limit(picture: Picture, path: str, complete: int, limit: int) -> None:
    """Compare a log with the fence that the next session put over it."""
    if limit > complete:
        message = f"only {complete} complete bytes are there, but {limit} count by the fence of the next session"
        picture.report("error", path, "4.7", message, "lines were lost; restore the log from a copy")
    elif limit > 0 and picture.fs.read(picture.store.path(path), limit - 1, 1) != b"\n":
        message = f"the fence of the next session cuts a line at byte {limit}"
        picture.report("error", path, "9", message, "whoever wrote that lock does not follow protocol.md 4.7")
    elif limit < complete:
        message = f"{complete - limit} bytes past the fence of the next session are void"
        picture.report("note", path, "4.7", message, "nothing: a writer went on after it had been replaced")


def _check_lines(picture: Picture, source: Source, complete: int, done: set[str]) -> tuple[set[str], set[str]]:
    """Read a log as every reader does, and name what it skips; returns its tags and the outcomes that have a line."""
    path, log = source.path, LogReader(source.job, source.session)
    tags: set[str] = set()
    for table in log.read(read_pieces(picture.fs, picture.store.path(path), 0, complete)):
        for chunk in table["tag"].chunks:
            tags.update(chunk.dictionary.to_pylist())
    numbers = line_numbers(picture.fs, picture.store.path(path), [begin for begin, _ in log.faults[:_MOST]])
    for line, (_, reason) in zip(numbers, log.faults, strict=False):
        message, remedy = f"{reason}; it does not count", "what is beside and after it counts; its writer is at fault"
        picture.report("error", path, "6.8", message, remedy, line=line)
    if log.skipped > _MOST:
        picture.report("error", path, "6.8", f"{log.skipped - _MOST} more faulty lines or values", "as above")
    lost = sorted(log.keys - done)
    for key in lost[:_MOST]:
        message = f"lines of the outcome {key!r:.220}, which does not stand, do not count"
        picture.report("note", path, "5.9", message, "nothing: the attempt was lost before its outcome was put")
    return tags, log.keys


def _check_system(picture: Picture, folder: str, name: str, held: Sessions, complete: dict[str, int]) -> None:
    """Check the samples of the machine of one session."""
    if not name.endswith(".jsonl") or name.startswith("."):
        return
    path = f"{folder}/{name}"
    fence = held.fences.get((folder.partition("/")[2], parse_number(name.removesuffix(".jsonl")) or 0))
    try:
        complete[path] = measure_log(picture.fs, picture.store.path(path)).size
        limit = complete[path] if fence is None else min(complete[path], fence.get(path, 0))
        faults: list[tuple[int, str]] = []
        before = 0
        for piece in read_pieces(picture.fs, picture.store.path(path), 0, limit):
            faults += [(before + number, reason) for number, reason in parse_samples(piece)[1]][: _MOST - len(faults)]
            before += piece.count(b"\n")
    except OSError as error:
        picture.report("error", path, "8.2", f"cannot be read: {error.strerror}", "make it readable")
        return
    for number, reason in faults:
        picture.report("error", path, "6.13", f"{reason}; it does not count", "its writer is at fault", line=number)


def _check_stated(picture: Picture, lock: Lock, end: End | None) -> None:
    """Whether a fence lets count what the end before it states; who goes on says what was acknowledged instead."""
    if lock.fence is None or lock.continues or end is None:
        return
    own = {layout.join(*parts) for parts in layout.session_logs(lock.job, lock.session - 1)}
    for path, size in sorted(end.sizes.items()):
        if path in own and (counts := lock.fence.get(path, 0)) < size:
            file = f"{layout.JOBS}/{layout.lock_name(lock.job, lock.session)}"
            message = f"its fence lets {counts} bytes of {path} count, but the end of that session states {size}"
            picture.report("error", file, "4.7", message, "whoever wrote it does not follow protocol.md 4.7")


def _check_sizes(picture: Picture, complete: dict[str, int]) -> None:
    """Compare what an end and a fence count with what is there."""
    for (job, session), end in sorted(picture.ends.items()):
        own = {layout.join(*parts) for parts in layout.session_logs(job, session)}
        for path, size in sorted(end.sizes.items()):
            file = f"{layout.JOBS}/{layout.end_name(job, session)}"
            if path not in own:
                message = f"states the size of {path!r:.200}, which is no log of its session"
                picture.report("error", file, "6.3", message, "whoever wrote it does not follow protocol.md 6.3")
            elif size > complete.get(path, 0):
                message = f"only {complete.get(path, 0)} complete bytes are there, but its end counts {size}"
                picture.report("error", path, "6.3", message, "lines were lost; restore the log from a copy")
    for (job, session), lock in sorted(picture.locks.items()):
        _check_stated(picture, lock, picture.ends.get((job, session - 1)))
        own = {layout.join(*parts) for parts in layout.session_logs(job, session - 1)}
        file = f"{layout.JOBS}/{layout.lock_name(job, session)}"
        for path, size in sorted((lock.fence or {}).items()):
            if path not in own:
                message = f"its fence names {path!r:.200}, which is no log of session {session - 1}"
                picture.report("error", file, "4.7", message, "whoever wrote it does not follow protocol.md 4.7")
            elif size > complete.get(path, 0) and path.partition("/")[0] != layout.SCALARS:
                message = f"only {complete.get(path, 0)} complete bytes are there, but {size} count"
                picture.report("error", path, "4.7", message, "lines were lost; restore the log from a copy")
            elif size and path not in complete:
                message = f"is gone, but {size} bytes of it count by the fence of session {session}"
                picture.report("error", path, "4.7", message, "restore the log from a copy")


def _check_spills(picture: Picture) -> None:
    for found in find_spills(picture.path, fs=picture.fs):
        who = f"job {found.job}, session {found.session}"
        if not picture.is_over(found.job, found.session):
            message = f"points of {who} wait in this local file; its process may live, and brings them by itself"
            picture.report("note", found.path, "4.9", message, "nothing, while its process lives")
            continue
        fix = Fix(2, "import it into the run", lambda found=found: bring_spill(picture, found))  # type: ignore[misc]
        message = f"points of {who} wait in this local file"
        picture.report("warning", found.path, "4.9", message, "fsrun check --fix on this host", fix=fix)


def _check_data(picture: Picture) -> None:
    """Whether data.parquet holds all that counts, once every job is closed."""
    from fsrun.run.compact import is_current

    what = is_current(picture.path, picture.fs) if picture.all_closed() else None
    if what is None:
        return
    fix = Fix(6, "build it from the logs", lambda: build_data(picture))
    picture.report("warning", layout.DATA, "6.9", what, "fsrun compact, or fsrun check --fix", fix=fix)
