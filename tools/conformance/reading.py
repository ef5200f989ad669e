"""What a run folder says, as the object that docs/clients.md asks of ``read``, made with fsrun's own library.

Reads only. Leaves to others: the rules (``fsrun.core``), gathering points (``fsrun.run.load``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fsrun.core import layout
from fsrun.core.errors import NotFoundError
from fsrun.core.ids import MAIN, is_entry
from fsrun.core.order import MainState, is_obeyed
from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.store import Store
from fsrun.run.create import find_unit
from fsrun.run.listing import names_in, read_chains, read_end
from fsrun.run.load import Loader
from fsrun.run.places import QueueState, claims, queue_state


def read_run(run: str) -> dict[str, Any]:
    """Return the reading of the run folder ``run``. Raises ``OSError`` where its folders cannot be read."""
    fs = LocalFileSystem()
    loader = Loader(fs, run)
    snapshot = loader.load()
    table = snapshot.table if snapshot.counted else loader.rules(snapshot).apply(snapshot.table)
    jobs = _jobs(fs, run)
    unit, state = _queue(fs, run, loader)
    return {
        "writable": not loader.refusals,
        "jobs": jobs,
        "points": _points(table.to_pydict()),
        "skipped": _skipped(fs, run),
        "entries": None if unit is None or state is None else _entries(fs, run, unit, state, loader),
        "finished": None if state is None else is_obeyed(state.finished, _main(jobs)),
    }


def _jobs(fs: LocalFileSystem, run: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for job, (session, closed) in sorted(read_chains(names_in(fs, f"{run}/{layout.JOBS}")).items()):
        end, _ = read_end(fs, run, job, session) if closed else ({"status": "running"}, None)
        reason = end.get("reason")
        found[job] = {
            "session": session,
            "status": end["status"],
            "reason": reason if isinstance(reason, str) else None,
        }
    return found


def _main(jobs: Mapping[str, Any]) -> MainState:
    main = jobs.get(MAIN)
    return MainState(0, "unknown") if main is None else MainState(main["session"], main["status"])


def word(value: float) -> float | str:
    """A value as JSON has it: a number, or the word of one that is none."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _points(columns: Mapping[str, list[Any]]) -> dict[str, list[list[Any]]]:
    found: dict[str, list[list[Any]]] = {}
    for tag, step, value in zip(columns["tag"], columns["step"], columns["value"], strict=True):
        found.setdefault(tag, []).append([step, word(value)])
    return found


def _skipped(fs: LocalFileSystem, run: str) -> dict[str, list[int]]:
    """By log, the lines that are at fault; a data.parquet knows how many they were, but not which."""
    loader = Loader(fs, run)
    loader.load(use_cache=False)
    found: dict[str, set[int]] = {}
    for problem in loader.problems.found:
        if problem.line is not None and problem.path.startswith(f"{layout.SCALARS}/"):
            found.setdefault(problem.path, set()).add(problem.line)
    return {path: sorted(lines) for path, lines in sorted(found.items())}


def _queue(fs: LocalFileSystem, run: str, loader: Loader) -> tuple[Store | None, QueueState | None]:
    """The unit and what stands in it; none where it stands elsewhere and cannot be reached."""
    mine = [lock for lock in loader.locks(names_in(fs, f"{run}/{layout.JOBS}")) if lock.job == MAIN]
    locks = {lock.session: lock for lock in mine}
    lock = locks.get(max(locks, default=0))
    try:
        unit = Store(fs, find_unit(fs, run, lock.unit if lock is not None else None), MAIN, 0)
    except NotFoundError:
        return None, None
    try:
        return unit, queue_state(unit)
    except NotADirectoryError:
        # Who acts on a queue/ that is a file stops; for a reader it is a folder with nothing in it.
        failed = sorted(name for name in unit.names(layout.FAILED) if is_entry(name))
        return unit, QueueState([], claims(unit), failed, None)


def _entries(fs: LocalFileSystem, run: str, unit: Store, state: QueueState, loader: Loader) -> dict[str, Any]:
    metas = filter(None, map(layout.parse_meta_name, unit.names(layout.META)))
    places: dict[str, str | None] = dict.fromkeys(metas)
    # Of two places the first in docs/clients.md counts, which is the last one set here.
    places |= {name: "best" for name in names_in(fs, f"{run}/{layout.BEST}") if is_entry(name)}
    places |= dict.fromkeys(state.failed, "failed")
    places |= {entry: "queue" for entry, attempt in state.waiting if attempt == 1}
    places |= {entry: "retry" for entry, attempt in state.waiting if attempt > 1}
    places |= {claim.entry: "claimed" for claim in state.claimed}
    outcomes: dict[str, dict[str, str]] = {}
    for name in sorted(names_in(fs, f"{run}/{layout.EVALS}")):
        key = layout.parse_outcome_name(name)
        if key is None:
            continue
        mine = outcomes.setdefault(key[0], {})
        outcome = loader.outcome(name)
        if outcome is not None:
            mine[str(key[1])] = outcome.state
    return {
        entry: {"place": places.get(entry), "outcomes": outcomes.get(entry, {})}
        for entry in sorted(places.keys() | outcomes.keys())
    }
