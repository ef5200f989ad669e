"""The state of one run as plain JSON values: the object of ``show --json`` (protocol.md 5, 6.5, 6.6).

Runs and jobs are read by ``listing``; here come the queue, the evaluations and the best entry. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fsrun.core import codec, layout
from fsrun.core.errors import FsrunError, InvalidError, NotFoundError
from fsrun.core.ids import MAIN, is_entry
from fsrun.core.order import MainState, is_obeyed
from fsrun.core.records import BestRule
from fsrun.core.retention import Kept, rank, score_of
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import Store
from fsrun.run.create import find_unit
from fsrun.run.listing import as_int, as_map, as_text, names_in, read_run, record_at
from fsrun.run.measured import read_environment
from fsrun.run.newest import newest_of
from fsrun.run.places import queue_state


def read_evals(fs: FileSystem, path: str) -> list[dict[str, Any]]:
    """Return all outcomes of a run in the order in which they were put (by their own clocks), unreadable ones last."""
    names = sorted(names_in(fs, f"{path}/{layout.EVALS}"))
    return sorted_evals(found for name in names if (found := read_eval(fs, path, name)) is not None)


def sorted_evals(evals: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Outcomes in the order in which they were put, unreadable ones last."""
    return sorted(evals, key=lambda outcome: (outcome["ended"] is None, outcome["ended"] or ""))


def read_eval(fs: FileSystem, path: str, name: str) -> dict[str, Any] | None:
    """Describe the outcome of that name in ``evals/``; None for a name of something else.

    Its ``state`` is ``unknown`` where it cannot be read, or not yet.
    """
    key = layout.parse_outcome_name(name)
    if key is None:
        return None
    record = record_at(fs, f"{path}/{layout.EVALS}/{name}")
    found: dict[str, Any] = {"entry": key[0], "attempt": key[1], "state": as_text(record.get("state")) or "unknown"}
    found |= {"step": as_int(record.get("step")), "scores": as_map(record.get("scores"))}
    found |= {"lag_steps": as_int(record.get("lag_steps")), "session": as_int(record.get("session"))}
    found |= {key: as_text(record.get(key)) for key in ("reason", "job", "started", "ended")}
    found |= {key: record.get(key) for key in ("duration_s", "error")}
    return found | {key: as_map(record.get(key)) or None for key in ("engine", "samples")}


def read_queue(fs: FileSystem, run: Mapping[str, Any]) -> dict[str, Any]:
    """Count entries by place; ``finished``: FINISHED stands and is obeyed (protocol.md 5.8).

    All are null, with a ``problem``, where the unit cannot be reached.
    """
    try:
        unit = find_unit(fs, run["path"], as_map(run["unit"]) or None)
        state = queue_state(Store(fs, unit, MAIN, 0))
    except (NotFoundError, OSError) as error:
        problem = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        return {"waiting": None, "claimed": None, "failed": None, "finished": None, "problem": problem}
    main = MainState(run["session"], run["status"] if run["closed"] else "running")
    return {
        "waiting": len(state.waiting),
        "claimed": len(state.claimed),
        "failed": len(state.failed),
        "finished": is_obeyed(state.finished, main),
        "problem": None,
    }


def read_best(fs: FileSystem, path: str, evals: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The best entry in ``best/`` by the run's rule, or None where there is no rule or none is there yet."""
    if layout.BEST_RULE not in (names := names_in(fs, path)) or layout.BEST not in names:
        return None
    try:
        rule = BestRule.from_json(record_at(fs, f"{path}/{layout.BEST_RULE}"))
    except InvalidError:
        return None
    there = {name for name in names_in(fs, f"{path}/{layout.BEST}") if is_entry(name)}
    done = [found for found in evals if found["state"] == "done" and found["entry"] in there]
    kept = [Kept(found["entry"], score_of(found["scores"], rule.tag), found["step"]) for found in done]
    ranked = rank(kept, rule.mode)
    if not ranked:
        return None
    best = {"entry": ranked[0].entry, "step": ranked[0].step, "score": codec.to_word(ranked[0].score or 0.0)}
    best |= {"tag": rule.tag, "mode": rule.mode, "keep": rule.keep}
    return best | {"path": f"{path}/{layout.BEST}/{ranked[0].entry}"}


def read_recorded(fs: FileSystem, path: str) -> list[dict[str, Any]]:
    """Media by kind and tag, tables and artifacts by name: how many, and step and place of the last one."""
    if not any(folder in layout.INDEXES for folder in names_in(fs, path)):
        return []
    from fsrun.run.reader import RunReader

    reader = RunReader(path, fs=fs)
    found: dict[tuple[str, str], dict[str, Any]] = {}

    def count(kind: str, name: str, step: int | None, place: str | None) -> None:
        group = found.setdefault((kind, name), {"kind": kind, "name": name, "count": 0})
        group |= {"count": group["count"] + 1, "step": step, "path": place and place[len(path) + 1 :]}

    for medium in reader.media():
        count(medium.kind, medium.tag, medium.step, medium.path)
    for table in reader.tables():
        count("table", table.name, table.step, table.path)
    for artifact in reader.artifacts():
        count("artifact", artifact.name, artifact.step, artifact.path)
    return list(found.values())


def read_evaluation(
    fs: FileSystem,
    path: str,
    summary: Mapping[str, Any],
    evals: list[dict[str, Any]],
    environment: dict[str, Any] | None,
) -> dict[str, Any] | None:
    """What evaluating cost; None where nothing was evaluated, or logs cannot be read, of which ``check`` says more.

    ``summary``: main's, which tells without reading a log whether it ever stood still.
    """
    from fsrun.run.costs import PAUSE_TAG, describe
    from fsrun.run.reader import RunReader

    if not evals and PAUSE_TAG not in summary:
        return None
    try:
        return describe(RunReader(path, fs=fs), evals, environment, summary)
    except (FsrunError, OSError):
        return None


def inspect_run(fs: FileSystem, path: str, *, now_ns: int) -> dict[str, Any]:
    """Return the object that ``fsrun show --json`` prints.

    Its keys: run, jobs, queue, best, newest (value of each scalar), evals, evaluation (what evaluating cost), recorded,
    environment.
    Raises ``NotFoundError`` where ``path`` is no run.
    """
    state = inspect_now(fs, path, read_evals(fs, path), now_ns=now_ns)
    return state | inspect_logs(fs, path, state)


def inspect_now(fs: FileSystem, path: str, evals: list[dict[str, Any]], *, now_ns: int) -> dict[str, Any]:
    """The part of it that is cheap and changes: run, jobs, queue, best, newest, and ``evals`` as they were given."""
    run = read_run(fs, path, now_ns=now_ns)
    jobs = run.pop("jobs")
    values, told = newest_of(fs, path, jobs)
    # A session that has logged nothing yet is where the one before it was.
    jobs = [job | {"step": told[job["job"]].step} for job in jobs]
    run["step"] = told[MAIN].step
    state = {"run": run, "jobs": jobs, "queue": read_queue(fs, run), "best": read_best(fs, path, evals)}
    return state | {"newest": values, "evals": evals}


def inspect_logs(fs: FileSystem, path: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """The rest, for which logs are read: evaluation, recorded, environment."""
    environment = read_environment(fs, path, MAIN) or None
    return {
        "evaluation": read_evaluation(fs, path, state["run"]["summary"], state["evals"], environment),
        "recorded": read_recorded(fs, path),
        "environment": environment,
    }
