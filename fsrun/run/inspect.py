"""The state of one run as plain JSON values: the object of ``show --json`` (protocol.md 5, 6.5, 6.6).

Runs and jobs are read by ``listing``; here come the queue, the evaluations and the best entry. Reads only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsrun.core import codec, layout
from fsrun.core.errors import InvalidError
from fsrun.core.ids import is_entry
from fsrun.core.order import MainState, is_obeyed, parse_finished
from fsrun.core.records import BestRule
from fsrun.core.retention import Kept, rank, score_of
from fsrun.disk.fs import FileSystem
from fsrun.run.listing import as_int, as_map, as_text, names_in, read_run, record_at


def read_evals(fs: FileSystem, path: str) -> list[dict[str, Any]]:
    """Return all outcomes of a run in the order in which they were put (by their own clocks), unreadable ones last."""
    evals = []
    for name in sorted(names_in(fs, f"{path}/{layout.EVALS}")):
        key = layout.parse_outcome_name(name)
        if key is None:
            continue
        record = record_at(fs, f"{path}/{layout.EVALS}/{name}")
        found: dict[str, Any] = {"entry": key[0], "attempt": key[1], "state": as_text(record.get("state")) or "unknown"}
        found |= {"step": as_int(record.get("step")), "scores": as_map(record.get("scores"))}
        found |= {"lag_steps": as_int(record.get("lag_steps")), "session": as_int(record.get("session"))}
        found |= {key: as_text(record.get(key)) for key in ("reason", "job", "started", "ended")}
        found |= {key: record.get(key) for key in ("duration_s", "error")}
        evals.append(found)
    return sorted(evals, key=lambda outcome: (outcome["ended"] is None, outcome["ended"] or ""))


def unit_of(run: Mapping[str, Any]) -> str:
    """Folder of a run's hand-over unit, as main's lock names it: the run folder where it names none."""
    return as_text(as_map(run["unit"]).get("path")) or run["path"]


def unit_problem(fs: FileSystem, run: Mapping[str, Any]) -> str | None:
    """Why the unit cannot be reached, or None. Unreachable is never empty (protocol.md 2)."""
    wanted = as_map(run["unit"])
    if not wanted.get("path"):
        return None
    where = f"the hand-over folder {wanted['path']} (made on {wanted.get('host', '?')})"
    if record_at(fs, f"{wanted['path']}/{layout.UNIT}").get("id") != wanted.get("id"):
        return f"{where} is unreachable from here, or is another one"
    return None


def read_queue(fs: FileSystem, run: Mapping[str, Any]) -> dict[str, Any]:
    """Count entries by place; ``finished``: FINISHED stands and is obeyed (protocol.md 5.8).

    All are null, with a ``problem``, where the unit is elsewhere and cannot be reached.
    """
    problem = unit_problem(fs, run)
    if problem is not None:
        return {"waiting": None, "claimed": None, "failed": None, "finished": None, "problem": problem}
    unit = unit_of(run)
    queue = _below(fs, unit, layout.QUEUE)
    retried = [f"{layout.RETRY}/{attempt}" for attempt in _below(fs, unit, layout.RETRY)]
    claims = [f"{layout.CLAIMED}/{owner}" for owner in _below(fs, unit, layout.CLAIMED)]
    attempts = [f"{claim}/{attempt}" for claim in claims for attempt in _below(fs, unit, claim)]
    content = fs.read(f"{unit}/{layout.QUEUE}/{layout.FINISHED}") if layout.FINISHED in queue else None
    main = MainState(run["session"], run["status"] if run["closed"] else "running")
    return {
        "waiting": _count(queue) + sum(_count(_below(fs, unit, folder)) for folder in retried),
        "claimed": sum(_count(_below(fs, unit, folder)) for folder in attempts),
        "failed": _count(_below(fs, unit, layout.FAILED)),
        "finished": is_obeyed(parse_finished(content), main),
        "problem": None,
    }


def _below(fs: FileSystem, unit: str, folder: str) -> list[str]:
    """Names in a folder of the unit, looked up only where the listings above it show it."""
    if "/" not in folder:
        return names_in(fs, f"{unit}/{folder}") if folder in names_in(fs, unit) else []
    return names_in(fs, f"{unit}/{folder}")


def _count(names: list[str]) -> int:
    return sum(map(is_entry, names))


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


def inspect_run(fs: FileSystem, path: str, *, now_ns: int) -> dict[str, Any]:
    """Return the object that ``fsrun show --json`` prints: run, jobs, queue, best, evals.

    Raises ``NotFoundError`` where ``path`` is no run.
    """
    run = read_run(fs, path, now_ns=now_ns)
    jobs = run.pop("jobs")
    queue = read_queue(fs, run)
    evals = read_evals(fs, path)
    return {"run": run, "jobs": jobs, "queue": queue, "best": read_best(fs, path, evals), "evals": evals}
