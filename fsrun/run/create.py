"""The folder of a run and its hand-over unit: where they are, and how they come to be.

Does: root, project and run to a path; the folders of a new run; the case check; the unit elsewhere with its id;
what the locks of main say.
Leaves to others: sessions (``session``), views (``views``), what stands in the unit (``handover``).

protocol.md: 2 (tree), 3 (names), 5 (the unit).
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fsrun.core import codec, ids, layout
from fsrun.core.errors import NotFoundError, UsageError
from fsrun.core.records import Lock, Unit
from fsrun.core.sessions import look
from fsrun.core.timing import DEFAULT_TIMEOUT, MAX_TIMEOUT, MIN_TIMEOUT
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import Store, read_record
from fsrun.run.chain import read_lock
from fsrun.run.roots import ROOT_VARIABLE, list_jobs, resolve_root

TIMEOUT_VARIABLE = "FSRUN_TIMEOUT"


@dataclass(frozen=True, slots=True)
class Location:
    """Where a run is. ``project`` and ``run`` as the user gave them, ``path`` with their portable forms."""

    root: str
    project: str
    run: str
    folder: str | None = None
    """The run folder that is there already, where it was named by its path: it may have been renamed or copied."""

    @property
    def parent(self) -> str:
        """The project's folder."""
        return f"{self.root}/{ids.portable(self.project)}"

    @property
    def path(self) -> str:
        """The run's folder."""
        return self.folder or f"{self.parent}/{ids.portable(self.run)}"


def locate(root: object, project: object, run_id: object, environ: Mapping[str, str], now_ns: int) -> Location:
    """Return where the run is. Root: ``root``, else $FSRUN_ROOT, else ``./runs``; a missing run id is made.

    Raises ``UsageError`` for an empty project or run id, and for a relative root where the working folder is gone.
    """
    return Location(
        root=resolve_root(root if isinstance(root, str | os.PathLike) else None, environ),
        project=_id("project", project),
        run=new_run_id(now_ns) if run_id is None else _id("run_id", run_id),
    )


def _id(what: str, value: object) -> str:
    text = os.fsdecode(value) if isinstance(value, str | os.PathLike) else str(value)
    if not text:
        raise UsageError(f"{what} is empty; give it a name")
    return text


def new_run_id(now_ns: int) -> str:
    """Return a new run id: UTC time and 40 random bits of the system, such as ``20261129-231501-4kq0zr1a``."""
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
    moment = datetime.fromtimestamp(now_ns // 1_000_000_000, UTC)
    return f"{moment:%Y%m%d-%H%M%S}-" + "".join(secrets.choice(alphabet) for _ in range(8))


def choose_timeout(timeout: object, environ: Mapping[str, str]) -> float:
    """Return the session's timeout in seconds: ``timeout``, else $FSRUN_TIMEOUT, else 30.

    Raises ``UsageError`` naming where a value that is no number of 0.2 to 86,400 s came from.
    """
    source, value = "timeout", timeout
    if value is None:
        source, value = f"${TIMEOUT_VARIABLE}", environ.get(TIMEOUT_VARIABLE) or DEFAULT_TIMEOUT
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        seconds = math.nan
    if not MIN_TIMEOUT <= seconds <= MAX_TIMEOUT:
        raise UsageError(f"{source}={value!r} is no number of seconds from {MIN_TIMEOUT} to {MAX_TIMEOUT:.0f}")
    return seconds


def exists(fs: FileSystem, where: Location) -> bool:
    """Whether a run is there: main was opened once.

    Goes down by listings: looking up a name that none has shown could hide it from this host for a minute.
    """
    if where.folder is not None:
        return list_jobs(fs, where.folder) is not None
    folder = where.root
    try:
        for name in (ids.portable(where.project), ids.portable(where.run)):
            if name not in fs.names(folder):
                return False
            folder = f"{folder}/{name}"
    except (FileNotFoundError, NotADirectoryError):
        return False
    return list_jobs(fs, folder) is not None


def require(fs: FileSystem, where: Location, job: str) -> None:
    """Raise ``NotFoundError`` where there is no run for a side job to join; it names the root that was searched."""
    if exists(fs, where):
        return
    raise NotFoundError(
        f"no run {where.run!r} of project {where.project!r} under {where.root}, which job {job!r} could join; "
        f"start the main job first, or set root= or ${ROOT_VARIABLE}"
    )


def create(fs: FileSystem, where: Location) -> None:
    """Make the folders of a run unless they are there.

    Raises ``UsageError`` naming the folder that cannot be made, or the other id that differs by case alone.
    After a crash: some of the folders, and no run yet; the next ``init`` goes on.
    """
    try:
        if where.folder is None:
            _make_root(fs, where.root)
            _make_named(fs, where.root, ids.portable(where.project), f"the project {where.project!r}")
            _make_named(fs, where.parent, ids.portable(where.run), f"the run {where.run!r}")
        store = Store(fs, where.path, ids.MAIN, 1)
        for folder in layout.RUN_FOLDERS:
            store.ensure_folder(folder)
    except OSError as error:
        raise UsageError(
            f"cannot make the run folder {where.path}: {error.strerror or error} ({error.filename}); "
            f"give a root that can be written with root= or ${ROOT_VARIABLE}"
        ) from error
    if not exists(fs, where):
        _try_out(fs, where, store)


def _try_out(fs: FileSystem, where: Location, store: Store) -> None:
    """Find out before there is a run whether its file system can do what a run is made of."""
    first, second = store.temp(layout.JOBS), store.temp(layout.JOBS)
    try:
        fs.create(first, b"")
        fs.rename(first, second)
        log = fs.append(second)
        try:
            log.write(b"\n")
            log.sync()
        finally:
            log.close()
        fs.unlink(second)
    except OSError as error:
        for path in (first, second):
            with suppress(OSError):
                fs.unlink(path)
        raise unsuitable(where, error) from error


def _make_root(fs: FileSystem, path: str) -> None:
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        try:
            fs.mkdir(folder)
        except FileExistsError:
            continue
        fs.sync_folder(os.path.dirname(folder) or "/")


def _make_named(fs: FileSystem, parent: str, name: str, what: str) -> None:
    """Make ``parent/name`` where no name that differs by case alone stands (protocol.md 3)."""
    _check_case(fs.names(parent), parent, name, what)
    try:
        fs.mkdir(f"{parent}/{name}")
    except FileExistsError:
        # Where the file system ignores case, another spelling may be what exists.
        _check_case(fs.names(parent), parent, name, what)
        return
    fs.sync_folder(parent)
    try:
        _check_case(fs.names(parent), parent, name, what)
    except UsageError:
        fs.rmdir(f"{parent}/{name}")
        raise


def _check_case(names: list[str], parent: str, name: str, what: str) -> None:
    for other in names:
        if other != name and other.lower() == name.lower():
            raise UsageError(f"{what} differs by case alone from {parent}/{other}; choose another id")


def newest_lock(fs: FileSystem, path: str) -> Lock | None:
    """Return the newest lock of main that can be read, or None.

    Raises ``InvalidError`` where this version must not write under it, or it breaks the protocol.
    """
    try:
        chain = look(fs.names(f"{path}/{layout.JOBS}"), ids.MAIN)
    except (FileNotFoundError, NotADirectoryError):
        return None
    store = Store(fs, path, ids.MAIN, max(1, chain.highest))
    for number in sorted(chain.locks, reverse=True):
        lock = read_lock(store, ids.MAIN, number)
        if lock is not None:
            return lock
    return None


def make_unit_here(fs: FileSystem, path: str) -> None:
    """Make the folders of the unit inside the run folder. After a crash: some of them."""
    store = Store(fs, path, ids.MAIN, 1)
    for folder in layout.UNIT_FOLDERS:
        store.ensure_folder(folder)


def make_unit(fs: FileSystem, where: Location, folder: object, host: str) -> dict[str, Any]:
    """Make a unit below ``folder``, or find the one of this run there; returns what main's lock says of it.

    Raises ``UsageError`` naming the folder where that cannot be, or where the unit of another run stands.
    After a crash: folders, perhaps with their unit.json; the next opening of main goes on with them.
    """
    given = os.fspath(folder) if isinstance(folder, str | os.PathLike) else str(folder)
    try:
        base = os.path.abspath(os.path.expanduser(os.fsdecode(given)))
        _make_root(fs, base)
        path = f"{base}/{ids.portable(where.project)}/{ids.portable(where.run)}"
        store = Store(fs, base, ids.MAIN, 1)
        store.ensure_folder(f"{ids.portable(where.project)}/{ids.portable(where.run)}")
        unit_store = Store(fs, path, ids.MAIN, 1)
        for name in layout.UNIT_FOLDERS:
            if name != layout.BEST:  # what is kept goes into the run folder
                unit_store.ensure_folder(name)
        made = Unit(id=secrets.token_hex(8), project=where.project, run=where.run)
        unit_store.put_if_absent("", layout.UNIT, codec.encode_record(made.to_json()))
        there = unit_store.record(layout.UNIT)
    except OSError as error:
        raise UsageError(f"cannot make the hand-over unit in {given}: {error.strerror or error}") from error
    if there is None:
        raise UsageError(f"{path}/{layout.UNIT} cannot be read; remove it or give another handover=")
    unit = Unit.from_json(there, f"{path}/{layout.UNIT}")
    if (unit.project, unit.run) != (where.project, where.run):
        raise UsageError(f"{path} is the hand-over unit of {unit.project}/{unit.run}; give another handover=")
    return {"path": path, "host": host, "id": unit.id}


def find_unit(fs: FileSystem, path: str, unit: Mapping[str, Any] | None) -> str:
    """Return the folder of a run's hand-over unit; raises ``NotFoundError`` where it cannot be reached from here.

    A unit that is missing, or carries another id than main's lock says, is unreachable and never empty.
    """
    if unit is None:
        return path
    folder = str(unit.get("path", ""))
    try:
        there = read_record(fs, f"{folder}/{layout.UNIT}")
    except OSError:
        there = None
    if there is None or there.get("id") != unit.get("id"):
        raise NotFoundError(
            f"the hand-over unit of {path} is {folder} on host {unit.get('host')}; it cannot be reached from here"
        )
    return folder


def unsuitable(where: Location, error: OSError) -> UsageError:
    """The error for a root whose file system refuses what the protocol is made of."""
    return UsageError(
        f"{where.path} is not fit for a run: {error.strerror or error} ({error.filename}); give a root on a file "
        f"system that can create, rename and append to files, with root= or ${ROOT_VARIABLE}"
    )
