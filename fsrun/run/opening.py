"""The steps of ``init``: whether this process is the job, the run folder, the session, the parts of the run.

Leaves to others: what the user sees (``run``), how the parts work together afterwards (``live``).

protocol.md: 4 (opening), 5 (the unit).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fsrun.core import capture, ids
from fsrun.core.config import encode_config
from fsrun.core.errors import UsageError
from fsrun.core.records import Lock
from fsrun.core.timing import FLUSH_INTERVAL, RANK_WAIT, Timing
from fsrun.disk import identity
from fsrun.disk.clock import Clock, SystemClock
from fsrun.disk.fs import FileSystem, LocalFileSystem
from fsrun.run import create
from fsrun.run.create import Location
from fsrun.run.life import is_main_imported_again
from fsrun.run.live import LiveRun, Opened
from fsrun.run.markers import set_marker
from fsrun.run.notices import Notices, say
from fsrun.run.ranks import find_rank, job_of
from fsrun.run.session import open_session
from fsrun.run.writer import ScalarWriter


def location_of(fs: FileSystem, folder: str) -> Location:
    """Where a run is that stands in ``folder``, with the ids that main's newest lock tells.

    The folder may have been renamed or copied: then its name is not what the ids would give, and it is kept as it is.
    Raises ``InvalidError`` where this version must not write.
    """
    folder = os.path.abspath(folder)
    parent, name = os.path.split(folder)
    lock = create.newest_lock(fs, folder)
    project, run = (lock.project, lock.run) if lock is not None else (None, None)
    return Location(os.path.dirname(parent), project or os.path.basename(parent), run or name, folder)


def quiet_place(arguments: Mapping[str, Any], where: Location | None = None) -> Location | None:
    """Where the run of a process is that is not the job, or None where it is.

    Quiet: the ranks besides the first, and a child of multiprocessing that imports the main module again. Arguments
    are checked alike on all ranks. Without ``run_id`` the run's own process alone knows its id: ``run`` is empty then.
    ``where``: known already.
    """
    job = _check(arguments)
    if job is not None and not is_main_imported_again():
        return None
    if where is not None:
        return where
    where = create.locate(arguments["root"], arguments["project"], arguments["run_id"], os.environ, time.time_ns())
    return where if arguments["run_id"] is not None else replace(where, run="")


def _check(arguments: Mapping[str, Any]) -> str | None:
    """The job that this process is, None for a quiet rank; raises ``UsageError``."""
    job = arguments["job"]
    if not isinstance(job, str) or not ids.is_job(job):
        raise UsageError(f"job={job!r} is no job name: lower case letters, digits, - and _, at most {ids.MAX_JOB}")
    if arguments["on_fenced"] not in ("warn", "raise"):
        raise UsageError(f"on_fenced={arguments['on_fenced']!r} is not known; it is 'warn' or 'raise'")
    wait = arguments["wait"]
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait < float("inf"):
        raise UsageError(f"wait={wait!r} is no number of seconds")
    capture.choose(arguments, os.environ)
    rank = find_rank(os.environ)
    mine = job_of(rank, job, arguments["ranks"])
    if arguments["ranks"] == "all" and arguments["run_id"] is None and rank.size > 1:
        raise UsageError("ranks='all' needs run_id=, the same on every rank")
    if mine is not None and not ids.is_job(mine):
        raise UsageError(f"job={mine!r} is too long for a job name")
    return mine


def open_live(
    arguments: Mapping[str, Any],
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    *,
    where: Location | None = None,
) -> LiveRun:
    """Open the run for this process and start its threads. Raises as ``init``; tests put ``fs`` and ``clock`` in.

    ``where``: known already; else ``root``, ``project`` and ``run_id`` of the arguments say it.

    After a crash: as ``init``.
    """
    fs, clock = fs or LocalFileSystem(), clock or SystemClock()
    job = _check(arguments) or ids.MAIN
    timing = Timing(create.choose_timeout(arguments["timeout"], os.environ))
    if where is None:
        where = create.locate(arguments["root"], arguments["project"], arguments["run_id"], os.environ, clock.now_ns())
    is_rank = job != arguments["job"]
    if job == ids.MAIN:
        create.create(fs, where)
    else:
        if arguments["handover"] is not None and not is_rank:
            raise UsageError(f"handover= is given by main alone; job {job!r} finds the unit through main's lock")
        _await_run(fs, clock, where, RANK_WAIT if is_rank else arguments["wait"])
        create.require(fs, where, job)
    previous = create.newest_lock(fs, where.path)
    notices = Notices()
    unit = _unit(fs, where, job, arguments["handover"], previous, notices)
    config = encode_config(arguments["config"])
    name = None if arguments["run_name"] is None else str(arguments["run_name"])
    if job == ids.MAIN and previous is not None:
        # What a restart does not say again stays as it was.
        config = config if arguments["config"] is not None else previous.config
        name = name if name is not None else previous.name
    fields: dict[str, Any] = {"project": where.project, "run": where.run, "name": name, "config": config}
    fields["hands_over"] = bool(arguments["hands_over"])
    if job == ids.MAIN:
        fields["unit"] = unit
    return _assemble(fs, clock, where, job, timing, fields, unit, arguments, notices)


def _assemble(
    fs: FileSystem,
    clock: Clock,
    where: Location,
    job: str,
    timing: Timing,
    fields: Mapping[str, Any],
    unit: Mapping[str, Any] | None,
    arguments: Mapping[str, Any],
    notices: Notices,
) -> LiveRun:
    set_marker(fs, where.root, where.path)
    try:
        session = open_session(
            fs, clock, where.path, job, timing=timing, lock_fields=fields, me=identity.own(), on_wait=say
        )
    except OSError as error:
        raise create.unsuitable(where, error) from error
    writer = ScalarWriter(
        fs,
        clock,
        where.path,
        job,
        session.number,
        token=session.token,
        flush_interval=min(FLUSH_INTERVAL, timing.timeout / 6),
        side_job=job != ids.MAIN and job == arguments["job"],  # a rank is a trainer: it must not wait
        warn=notices.warn,
        strict=bool(arguments["strict"]),
        is_protected=session.is_protected,
    )
    opened = Opened(
        fs=fs,
        clock=clock,
        where=where,
        session=session,
        config=fields["config"],
        name=fields["name"],
        unit=unit,
        unit_path=str(unit["path"]) if unit is not None else where.path,
        on_fenced=arguments["on_fenced"],
        capture=replace(capture.choose(arguments, os.environ), code=job == arguments["job"]),
    )
    live = LiveRun(opened, writer, notices)
    live.start()
    return live


def _unit(
    fs: FileSystem, where: Location, job: str, handover: object, previous: Lock | None, notices: Notices
) -> Mapping[str, Any] | None:
    """What main's lock says of a unit elsewhere: made by main, carried on from session to session."""
    known = previous.unit if previous is not None else None
    if job != ids.MAIN:
        return known
    if handover is None:
        if known is None:
            create.make_unit_here(fs, where.path)
        return known
    unit = create.make_unit(fs, where, handover, identity.own().host)
    if previous is not None and (known or {}).get("id") != unit["id"]:
        place = f"{known['path']} on host {known['host']}" if known else where.path
        notices.warn(f"{where.path}: the hand-over unit is now {unit['path']}; what waits in {place} stays there")
    return unit


def _await_run(fs: FileSystem, clock: Clock, where: Location, limit: float) -> None:
    """Wait ``limit`` seconds at most for somebody to create the run."""
    began = clock.monotonic()
    told = False
    while (left := began + limit - clock.monotonic()) > 0 and not create.exists(fs, where):
        if not told:
            say(f"waiting up to {limit:g} s for the run {where.path} to appear")
            told = True
        # Most runs appear soon; where that takes longer, the root is listed less often.
        clock.sleep(min(left, 0.2 if limit - left < 5 else 1.0))
