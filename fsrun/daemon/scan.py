"""What the daemon looks at: runs below a root, one run's ``jobs/``, one run's whole folder. Reads only.

Folders are gone into where a listing shows them as folders; links, in or out of the root, are not followed. Nothing is
remembered here but what the caller hands in. Leaves to others: decisions (``core.reconcile``), when (``loop``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from fsrun.core import layout, sessions
from fsrun.core.errors import InvalidError, NotFoundError
from fsrun.core.ids import MAIN
from fsrun.core.queue import Claim
from fsrun.core.reconcile import Inside, Look, Temporary
from fsrun.core.records import Holder, Lock, holder_of
from fsrun.core.sessions import Chain
from fsrun.disk import identity
from fsrun.disk.clock import Clock
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import Store
from fsrun.run import chain as steps
from fsrun.run import places, views
from fsrun.run.check.finding import Picture
from fsrun.run.create import find_unit

Problem = Callable[[str, str], None]
"""``(path, what is wrong)``: told at each look; who is told says it once."""
_TEMP_FOLDERS = (
    layout.JOBS,
    layout.SCALARS,
    layout.EVALS,
    layout.FILES,
    layout.MEDIA,
    layout.TABLES,
    layout.ARTIFACTS,
    layout.BEST,
)


def find_runs(
    fs: FileSystem, root: str, known: Collection[str], enter: Callable[[str], None], problem: Problem
) -> Iterator[str]:
    """Yield the folders below ``root`` (or itself) that hold a ``jobs/``; ``known`` ones without a look inside.

    Empty ones as well: that is how a run begins. ``enter`` is called with each folder of the root before it is listed.
    Raises ``OSError`` where the root cannot be listed.
    """
    tops = fs.scan(root)
    if (layout.JOBS, True) in tops:
        yield root
        return
    for top, is_folder in sorted(tops):
        if not is_folder or top.startswith("."):
            continue
        path = f"{root}/{top}"
        enter(path)
        inside = None if path in known else _listed(fs, path, problem)
        if inside is None or inside.get(layout.JOBS):
            yield path
            continue
        for name in sorted(name for name, is_folder in inside.items() if is_folder and not name.startswith(".")):
            run = f"{path}/{name}"
            if run in known or not (found := _listed(fs, run, problem)) or found.get(layout.JOBS):
                yield run


def _listed(fs: FileSystem, path: str, problem: Problem) -> dict[str, bool]:
    """What stands in a folder: name, and whether it is a folder. What cannot be listed is no run."""
    try:
        return dict(fs.scan(path))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        problem(path, f"cannot be listed: {error.strerror or error}")
    return {"": False}


def is_gone(fs: FileSystem, root: str, run_dir: str) -> bool:
    """Whether a run that was there is not: listings say so, since an error of one that was stale does not.

    Raises ``OSError`` where the root cannot be listed.
    """
    folder = root
    for name in [*run_dir.removeprefix(root).strip("/").split("/"), layout.JOBS]:
        if name and name not in fs.names(folder):
            return True
        folder = f"{folder}/{name}" if name else folder
    return False


def is_run(chains: Mapping[str, Chain]) -> bool:
    """Whether main was opened once (protocol.md 4.1)."""
    return MAIN in chains and chains[MAIN].highest > 0


Locks = dict[tuple[str, int], Lock]
"""Locks that were read, without their config, by job and session: they never change."""


def look_at(fs: FileSystem, clock: Clock, run_dir: str, known: Locks, me: Holder, problem: Problem) -> Look:
    """List ``jobs/`` of a run afresh, and read the locks of open sessions that are not ``known`` yet.

    Raises ``OSError`` where it cannot be listed.
    """
    started = clock.monotonic()
    names = fs.names(f"{run_dir}/{layout.JOBS}")
    ended = clock.monotonic()
    chains = sessions.look_all(names)
    locks: dict[str, Lock | None] = {}
    dead: set[str] = set()
    barred = False
    for job, chain in chains.items():
        if chain.closed:
            continue
        try:
            lock = locks[job] = _lock(fs, run_dir, job, chain.highest, known)
        except InvalidError as error:
            problem(run_dir, str(error))
            barred = True
            continue
        except OSError as error:
            problem(run_dir, f"{layout.lock_name(job, chain.highest)} cannot be read: {error.strerror or error}")
            locks[job] = None
            continue
        if lock is not None and is_local(lock, me) and identity.proved_dead(holder_of(lock), me):
            dead.add(job)
    for job, session in list(known):
        if job not in chains or chains[job].highest != session or chains[job].closed:
            del known[job, session]
    return Look(started, ended, chains, locks, frozenset(dead), barred)


def is_local(lock: Lock, me: Holder) -> bool:
    """Whether this host may know of a lock's process; that of most runs is elsewhere, and this is asked often."""
    return lock.holder.get("host") == me.host and lock.holder.get("boot") == me.boot


def _lock(fs: FileSystem, run_dir: str, job: str, session: int, known: Locks) -> Lock | None:
    lock = known.get((job, session))
    if lock is None:
        lock = steps.read_lock(Store(fs, run_dir, job, session), job, session)
        if lock is not None:
            lock = known[job, session] = replace(lock, config={}, extra={})
    return lock


@dataclass(slots=True)
class Found:
    """A look through a run's folder, and what acting upon it takes."""

    inside: Inside
    picture: Picture
    unit: Store | None
    """None: it cannot be reached from here."""
    problems: list[str] = field(default_factory=list)


def look_inside(fs: FileSystem, run_dir: str, me: Holder, markers: Collection[str] | None, marker: str | None) -> Found:
    """Look through the folder of a run and its unit.

    ``markers``: the names in ``.live/``; ``marker``: the one of this run, None where it can have none. Raises
    ``OSError`` where the folder cannot be listed, ``InvalidError`` where this version must not write to the run.
    """
    top = dict(fs.scan(run_dir))
    picture = Picture(fs, run_dir, Store(fs, run_dir, "daemon", 0), me)
    picture.names = sorted(fs.names(f"{run_dir}/{layout.JOBS}"))
    picture.chains = sessions.look_all(picture.names)
    problems: list[str] = []
    for job, chain in picture.chains.items():
        lock = steps.read_lock(picture.store, job, chain.highest) if chain.highest else None
        if lock is not None:
            picture.locks[job, chain.highest] = lock
    unit, outside = _unit(picture, top, problems)
    claims = _claims(unit, outside or top)
    log_bytes, compacted = _logs(picture, top)
    inside = Inside(
        chains=picture.chains,
        tokens={job: lock.token for (job, _), lock in picture.locks.items()},
        claims=claims,
        adopted=_adopted(picture, claims),
        wrong_views=_wrong_views(picture, top, problems),
        trash=tuple(_trash(picture, top, unit, outside)),
        temporaries=tuple(_temporaries(picture, top, unit, outside)),
        log_bytes=log_bytes,
        compacted=compacted,
        marked=None if marker is None or markers is None else marker in markers,
    )
    return Found(inside, picture, unit, problems)


def _unit(picture: Picture, top: dict[str, bool], problems: list[str]) -> tuple[Store | None, dict[str, bool] | None]:
    """The unit, and what stands in it where it is not the run folder."""
    main = picture.chains.get(MAIN)
    lock = picture.locks.get((MAIN, main.highest)) if main is not None else None
    if lock is None or lock.unit is None:
        return picture.store, None
    try:
        path = find_unit(picture.fs, picture.path, lock.unit)
        return Store(picture.fs, path, "daemon", 0), dict(picture.fs.scan(path))
    except (NotFoundError, OSError) as error:
        problems.append(str(error))
        return None, None


def _claims(unit: Store | None, top: Mapping[str, bool]) -> tuple[Claim, ...]:
    return tuple(places.claims(unit)) if unit is not None and top.get(layout.CLAIMED) else ()


def _adopted(picture: Picture, claims: tuple[Claim, ...]) -> frozenset[tuple[str, int]]:
    adopted: set[tuple[str, int]] = set()
    for job, session in {c.owner for c in claims}:
        chain = picture.chains.get(job)
        if chain is None or not picture.is_closed(job, session):
            continue
        for later in sorted(number for number in chain.locks if number > session):
            if (job, later) not in picture.locks and (lock := steps.read_lock(picture.store, job, later)) is not None:
                picture.locks[job, later] = lock
        if not picture.is_over(job, session):
            adopted.add((job, session))
    return frozenset(adopted)


def _wrong_views(picture: Picture, top: Mapping[str, bool], problems: list[str]) -> frozenset[str]:
    wrong: set[str] = set()
    for job, chain in picture.chains.items():
        if not chain.highest or not chain.closed:
            continue
        try:
            end = steps.read_end(picture.store, job, chain.highest)
        except InvalidError as error:
            problems.append(f"{layout.JOBS}/{layout.end_name(job, chain.highest)}: {error}")
            continue
        if end is None or (job, chain.highest) not in picture.locks:
            name = layout.end_name(job, chain.highest) if end is None else layout.lock_name(job, chain.highest)
            problems.append(f"{layout.JOBS}/{name} is no record")
            continue
        path = layout.job_view(job)
        listed = path in top or path.rpartition("/")[2] in picture.names
        view = views.read(picture.store, job) if listed else {}
        if (view.get("session"), view.get("status")) != (chain.highest, end.status):
            wrong.add(job)
    return frozenset(wrong)


def _trash(
    picture: Picture, top: Mapping[str, bool], unit: Store | None, outside: Mapping[str, bool] | None
) -> Iterator[str]:
    if top.get(layout.TRASH) and picture.store.names(layout.TRASH):
        yield picture.path
    if unit is not None and outside is not None and outside.get(layout.TRASH) and unit.names(layout.TRASH):
        yield unit.root


def _temporaries(
    picture: Picture, top: Mapping[str, bool], unit: Store | None, outside: Mapping[str, bool] | None
) -> Iterator[Temporary]:
    here = (*_TEMP_FOLDERS, *(() if outside is not None else layout.UNIT_FOLDERS))
    for file in _temporary_names(picture.store, top, here):
        yield _temporary(picture, picture.path, file)
    if unit is not None and outside is not None:
        for file in _temporary_names(unit, outside, layout.UNIT_FOLDERS):
            yield _temporary(picture, unit.root, file)


def _temporary_names(store: Store, top: Mapping[str, bool], folders: tuple[str, ...]) -> Iterator[str]:
    yield from (name for name in top if layout.is_temp(name))
    for folder in dict.fromkeys(folders):
        if folder != layout.TRASH and top.get(folder):
            yield from (f"{folder}/{name}" for name in store.names(folder) if layout.is_temp(name))


def _temporary(picture: Picture, folder: str, file: str) -> Temporary:
    owner = layout.parse_temp_name(file.rpartition("/")[2])
    dead = False
    if owner is not None and picture.is_closed(*owner):
        if owner not in picture.locks and (lock := steps.read_lock(picture.store, *owner)) is not None:
            picture.locks[owner] = lock
        dead = picture.proved_dead(*owner)
    return Temporary(folder, file, owner, dead)


def _logs(picture: Picture, top: Mapping[str, bool]) -> tuple[int, bool]:
    """Bytes of scalar logs, and whether a data.parquet stands that is not older than they: a hint, no more."""
    fs, size, newest = picture.fs, 0, 0
    if top.get(layout.SCALARS):
        for name in picture.store.names(layout.SCALARS):
            if layout.parse_log_name(name) is not None:
                facts = fs.stat(picture.store.path(layout.SCALARS, name))
                size += facts.size
                newest = max(newest, facts.mtime_ns if facts.size else 0)
    if not all(chain.closed for chain in picture.chains.values()):
        return size, True
    if top.get(layout.EVALS) and any(map(layout.parse_outcome_name, picture.store.names(layout.EVALS))):
        newest = max(newest, fs.stat(picture.store.path(layout.EVALS)).mtime_ns)
    if layout.DATA not in top:
        return size, newest == 0
    return size, fs.stat(picture.store.path(layout.DATA)).mtime_ns >= newest
