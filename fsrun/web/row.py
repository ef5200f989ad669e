"""One run as a row of the table: who runs, how far it is, the best score, what waits. Reads only.

A damaged run is a row all the same, with a ``problem``. Texts and mappings are cut to a size that a table can hold: ten
thousand rows travel at once. Leaves to others: which runs there are and when one is read anew (``catalog``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fsrun.core import codec, layout
from fsrun.core.errors import FsrunError, InvalidError
from fsrun.core.ids import MAIN, is_entry
from fsrun.core.records import BestRule
from fsrun.core.retention import Kept, rank, score_of
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import Store
from fsrun.run.create import find_unit
from fsrun.run.listing import as_int, as_map, as_text, error_line, names_in, read_chains, read_run, record_at, started
from fsrun.run.newest import Newest, merge
from fsrun.run.places import queue_state
from fsrun.run.roots import FIRST_LOCK

_TEXT = 200
"""Characters of a text in a row."""
_KEYS = 300
"""Settings, and scalars, in a row."""
PLACES = ("waiting", "claimed", "failed")
"""Where entries are that a row counts."""
_JOB_FACTS = ("job", "status", "reason", "host", "pid", "heartbeat", "silent_s", "timeout", "session", "alive", "step")


@dataclass(slots=True)
class Seen:
    """What is remembered of a run from one look to the next."""

    newest: Newest = field(default_factory=Newest)
    unit: dict[str, Any] | None = None
    """Where its hand-over unit is, if elsewhere."""


def read_row(fs: FileSystem, path: str, key: str, names: list[str], seen: Seen, *, now_ns: int) -> dict[str, Any]:
    """A run as a row. ``names``: the listing of its ``jobs/``. ``seen``: what was read before; it is brought forward.

    Its keys are those of ``/api/runs`` in docs/viewer.md. Raises ``OSError`` where the run folder cannot be listed.
    """
    project, _, folder = key.partition("/")
    row: dict[str, Any] = {"key": key, "project": project, "run": folder}
    if FIRST_LOCK not in names:
        return row | unknown(f"{layout.JOBS}/{FIRST_LOCK} is missing: not begun yet, or damaged")
    chains = read_chains(names)
    run = read_run(fs, path, chains, now_ns=now_ns)
    jobs = run["jobs"]
    everyone = [run | {"job": MAIN}, *(job for job in jobs if job["job"] != MAIN)]
    told = seen.newest.read(fs, path, names, everyone)
    everyone = [job | {"step": told[job["job"]].step} for job in everyone]
    tops = set(fs.names(path))
    seen.unit = as_map(run["unit"]) or None
    row |= {
        "project": cut(run["project"]),
        "run": cut(run["id"]),
        "name": cut(run["name"]),
        "status": run["status"],
        "reason": cut(run["reason"]),
        "step": told[MAIN].step,
        "started": run["opened"] if run["session"] == 1 else started(fs, path),
        "ended": run["ended"],
        "heartbeat": run["heartbeat"],
        "silent_s": run["silent_s"],
        "best": _best(fs, path, tops),
        "summary": _summary(merge((job, told[job["job"]]) for job in everyone)),
        "config": flat(run["config"]),
        "jobs": [_job(job) for job in everyone],
        **read_queue(fs, path, seen),
    }
    problems = [job["problem"] for job in everyone if job["problem"]]
    return row | {"problem": cut("; ".join(problems)) if problems else None}


def unknown(problem: str) -> dict[str, Any]:
    """What a row holds of a run that cannot be read, but its key, project and run."""
    nothing = ("name", "reason", "step", "started", "ended", "heartbeat", "silent_s", "best")
    row: dict[str, Any] = dict.fromkeys(nothing)
    row |= {"status": "unknown", "summary": {}, "config": {}, "jobs": []}
    return row | dict.fromkeys(PLACES) | {"problem": cut(problem)}


def cut(text: str | None) -> str | None:
    """A text of a length that a table can hold."""
    return text if text is None or len(text) <= _TEXT else text[: _TEXT - 1] + "…"


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted name, ``optimizer.lr``: numbers, truths and texts; lists as JSON."""
    found: dict[str, Any] = {}

    def add(prefix: str, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if len(found) >= _KEYS:
                return
            key = f"{prefix}{name}"[:_TEXT]
            if isinstance(value, dict) and value:
                add(f"{key}.", value)
            else:
                found[key] = _plain(value)

    add("", config)
    return found


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    return cut(value if isinstance(value, str) else codec.encode_shown({"": value}).decode()[4:-2])


def _job(job: Mapping[str, Any]) -> dict[str, Any]:
    facts = {key: job[key] for key in _JOB_FACTS}
    return facts | {"reason": cut(job["reason"]), "ended": job["ended"], "error_line": cut(error_line(job["error"]))}


def _summary(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name[:_TEXT]: _plain(values[name]) for name in sorted(values)[:_KEYS]}


def _best(fs: FileSystem, path: str, tops: set[str]) -> dict[str, Any] | None:
    """The best entry of ``best/``. Of all outcomes only those of kept entries are read."""
    if layout.BEST_RULE not in tops or layout.BEST not in tops:
        return None
    try:
        rule = BestRule.from_json(record_at(fs, f"{path}/{layout.BEST_RULE}"))
    except InvalidError:
        return None
    there = {name for name in names_in(fs, f"{path}/{layout.BEST}") if is_entry(name)}
    kept = []
    for name in names_in(fs, f"{path}/{layout.EVALS}") if there else ():
        key = layout.parse_outcome_name(name)
        if key is None or key[0] not in there:
            continue
        outcome = record_at(fs, f"{path}/{layout.EVALS}/{name}")
        if as_text(outcome.get("state")) == "done":
            kept.append(Kept(key[0], score_of(as_map(outcome.get("scores")), rule.tag), as_int(outcome.get("step"))))
    ranked = rank(kept, rule.mode)
    if not ranked:
        return None
    score = codec.to_word(ranked[0].score or 0.0)
    return {"tag": cut(rule.tag), "mode": rule.mode, "score": score, "step": ranked[0].step, "entry": ranked[0].entry}


def read_queue(fs: FileSystem, path: str, seen: Seen) -> dict[str, int | None]:
    """How many entries are where; null where the unit, as it was seen last, is elsewhere and cannot be reached."""
    try:
        state = queue_state(Store(fs, find_unit(fs, path, seen.unit), MAIN, 0))
    except (FsrunError, OSError):
        return dict.fromkeys(PLACES)
    return {"waiting": len(state.waiting), "claimed": len(state.claimed), "failed": len(state.failed)}
