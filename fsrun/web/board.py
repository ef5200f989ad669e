"""The queue of a run as a board: where every checkpoint is, from hand-over to verdict. Reads only.

Outcomes and metas never change once they stand, so each is read once. Leaves to others: the rules of what goes where
(``core.states``), samples (``content``).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fsrun.core import layout
from fsrun.core.errors import FsrunError, InvalidError
from fsrun.core.ids import MAIN, is_entry
from fsrun.core.order import Waiting, facts_of
from fsrun.core.queue import Claim
from fsrun.core.records import BestRule, Meta, rfc3339
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import Store
from fsrun.run.create import find_unit
from fsrun.run.inspect import read_best, read_eval, sorted_evals
from fsrun.run.listing import as_map, as_text, last_logged_step, names_in, read_chains, record_at
from fsrun.run.places import QueueState, queue_state, read_meta
from fsrun.web.held import Origin, origin_of

_RUNS = 16
_OUTCOMES = 5_000
"""The newest outcomes, so many, are given."""


@dataclass(slots=True)
class _Known:
    """What was read of a run and does not change."""

    origin: Origin
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)
    metas: dict[str, Meta] = field(default_factory=dict)
    hosts: dict[tuple[str, int], str | None] = field(default_factory=dict)


class Board:
    """Boards of runs; called from several threads at once."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def board(self, run_path: str) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/evals``. Raises ``OSError`` where the run cannot be listed."""
        fs = self._fs
        jobs = fs.names(f"{run_path}/{layout.JOBS}")
        known = self._known_of(run_path, jobs)
        chains = read_chains(jobs)
        evals = self._evals(run_path, known)
        session = chains.get(MAIN, (1, False))[0]
        lock = record_at(fs, f"{run_path}/{layout.JOBS}/{layout.lock_name(MAIN, session)}")
        problem = None
        unit, state = None, QueueState([], [], [], None)
        try:
            unit = Store(fs, find_unit(fs, run_path, as_map(lock.get("unit")) or None), MAIN, 0)
            state = queue_state(unit)
        except (FsrunError, OSError) as error:
            problem = str(error)
        best = {name for name in names_in(fs, f"{run_path}/{layout.BEST}") if is_entry(name)}
        waiting = [self._waiting(unit, known, evals, *item) for item in state.waiting if unit is not None]
        claimed = [self._claimed(run_path, unit, known, claim) for claim in state.claimed if unit is not None]
        places = {item["entry"] for item in (*(item for _, item in waiting), *claimed)}
        return {
            "rule": self._rule(run_path),
            "best": read_best(fs, run_path, evals),
            "main_step": last_logged_step(fs, run_path, MAIN, session),
            "finished": state.finished is not None,
            "problem": problem,
            "outcomes": evals[-_OUTCOMES:],
            "total": len(evals),
            "board": {
                "waiting": [item for _, item in sorted(waiting, key=lambda pair: pair[0])],
                "claimed": sorted(claimed, key=_by_step),
                **_ended(evals[-_OUTCOMES:], places, best, set(state.failed)),
            },
        }

    def evals(self, run_path: str) -> list[dict[str, Any]]:
        """All outcomes of a run, as ``inspect.read_evals`` gives them."""
        return self._evals(run_path, self._known_of(run_path, names_in(self._fs, f"{run_path}/{layout.JOBS}")))

    def _known_of(self, run_path: str, jobs: Iterable[str]) -> _Known:
        origin = origin_of(self._fs, run_path, jobs)
        with self._lock:
            known = self._known.get(run_path)
            if known is None or known.origin != origin:
                # A run that was deleted and made again has outcomes of the same names.
                known = self._known[run_path] = _Known(origin)
            self._known.move_to_end(run_path)
            while len(self._known) > _RUNS:
                self._known.popitem(last=False)
            return known

    def _evals(self, run_path: str, known: _Known) -> list[dict[str, Any]]:
        names = [name for name in names_in(self._fs, f"{run_path}/{layout.EVALS}") if layout.parse_outcome_name(name)]
        found = []
        for name in names:
            outcome = known.outcomes.get(name) or read_eval(self._fs, run_path, name)
            if outcome is not None:
                found.append(outcome)
                if outcome["state"] != "unknown":
                    known.outcomes[name] = outcome
        return sorted_evals(found)

    def _rule(self, run_path: str) -> dict[str, Any] | None:
        if layout.BEST_RULE not in names_in(self._fs, run_path):
            return None
        try:
            rule = BestRule.from_json(record_at(self._fs, f"{run_path}/{layout.BEST_RULE}"))
        except InvalidError:
            return None
        return {"tag": rule.tag, "mode": rule.mode, "keep": rule.keep}

    def _waiting(
        self, unit: Store, known: _Known, evals: list[dict[str, Any]], entry: str, attempt: int
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """An entry that waits, behind what sorts it as evaluators take it (protocol.md 5.2)."""
        meta = self._meta(unit, known, entry)
        since = (meta.handed_over or None) if meta is not None else None
        given_back = False
        if attempt > 1:
            which = (entry, attempt - 1)
            before: dict[str, Any] = next((o for o in reversed(evals) if (o["entry"], o["attempt"]) == which), {})
            since = before.get("ended") or since
            given_back = before.get("state") == "returned"
        facts = facts_of(entry, meta)
        waiting = Waiting(entry, attempt, facts.step, facts.main_session or 0, facts.order or 0, given_back)
        place = (attempt > 1 and not given_back, waiting.key, attempt)
        return place, {"entry": entry, "attempt": attempt, "since": since, **_facts(entry, meta)}

    def _claimed(self, run_path: str, unit: Store, known: _Known, claim: Claim) -> dict[str, Any]:
        owner = (claim.job, claim.session)
        if owner not in known.hosts:
            lock = record_at(self._fs, f"{run_path}/{layout.JOBS}/{layout.lock_name(*owner)}")
            known.hosts[owner] = as_text(as_map(lock.get("holder")).get("host"))
        folder = unit.path(layout.CLAIMED, layout.claim_folder(*owner), str(claim.attempt))
        try:
            # An entry is claimed by a rename into this folder, one at a time: by the file server's clock, for people.
            since = rfc3339(self._fs.stat(folder).mtime_ns)
        except OSError:
            since = None
        facts = {"entry": claim.entry, "attempt": claim.attempt, "job": claim.job, "session": claim.session}
        facts |= {"host": known.hosts[owner], "since": since}
        return facts | _facts(claim.entry, self._meta(unit, known, claim.entry))

    def _meta(self, unit: Store, known: _Known, entry: str) -> Meta | None:
        meta = known.metas.get(entry) or read_meta(unit, entry)
        if meta is not None:
            known.metas[entry] = meta
        return meta


def _facts(entry: str, meta: Meta | None) -> dict[str, Any]:
    return {"step": facts_of(entry, meta).step, "size": meta.size if meta is not None else None}


def _ended(
    evals: list[dict[str, Any]], elsewhere: set[str], best: set[str], failed: set[str]
) -> dict[str, list[dict[str, Any]]]:
    """Entries by how their last attempt ended; those that wait or are claimed are elsewhere."""
    last: dict[str, dict[str, Any]] = {}
    for outcome in evals:
        if outcome["entry"] not in last or outcome["attempt"] >= last[outcome["entry"]]["attempt"]:
            last[outcome["entry"]] = outcome
    columns: dict[str, list[dict[str, Any]]] = {"done": [], "kept": [], "failed": [], "skipped": []}
    for entry, outcome in last.items():
        if entry in elsewhere:
            continue
        state = outcome["state"]
        if entry in failed:
            columns["failed"].append(outcome)
        elif state == "done":
            columns["kept" if entry in best else "done"].append(outcome)
        elif state == "skipped":
            columns["skipped"].append(outcome)
    for entry in failed - last.keys():
        columns["failed"].append({"entry": entry, "attempt": None, "step": None, "state": "failed", "scores": {}})
    return {name: sorted(items, key=_by_step) for name, items in columns.items()}


def _by_step(item: Mapping[str, Any]) -> tuple[bool, int, str]:
    return item["step"] is None, item["step"] or 0, item["entry"]
