"""The orders of writes of protocol.md 9, judged by the order in which names came and went (``watching``).

Each is a rule about one event and what stood just then. What was not seen for certain is judged by nobody.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import folder
from driven import expect
from folder import JOB_FILE
from watching import Event, Watcher

TRUE_NAMES = ("queue", "best", "retry")
"""Folders in which an entry appears whole."""


def judge(run: Path, watcher: Watcher) -> None:
    """Raise ``Failure`` for the first thing that was done too early."""
    watcher.look()
    orders = _Orders(run, watcher)
    for number, event in enumerate(watcher.events):
        orders.happened(number, event)


class _Orders:
    def __init__(self, run: Path, watcher: Watcher) -> None:
        self._run, self._watcher = run, watcher
        self._stands: dict[str, set[str]] = {}
        self._number = 0
        self._metas = folder.names(run / "meta")

    def happened(self, number: int, event: Event) -> None:
        """Judge one event, and remember what stands since."""
        self._number = number
        names = self._stands.setdefault(event.folder, set())
        if event.kind != "there" and self._sure(event.folder):
            top, _, inner = event.folder.partition("/")
            if event.folder == "jobs":
                self._job(event, names)
            elif top in TRUE_NAMES:
                self._true_name(event, top, inner)
            elif top == "claimed" and event.kind == "gone":
                self._left_a_claim(event, inner)
            if event.folder == "meta" and event.came:
                self._reserved(event)
            if event.folder == "best" and event.kind == "gone":
                self._pruned(event, names - {event.name})
        if event.came:
            names.add(event.name)
        elif event.kind == "gone":
            names.discard(event.name)

    def _sure(self, *folders: str) -> bool:
        return all(self._watcher.sure.get(name, self._number + 1) <= self._number for name in folders)

    def _names(self, name: str) -> set[str]:
        return self._stands.get(name, set())

    # Sessions.

    def _job(self, event: Event, names: set[str]) -> None:
        m = JOB_FILE.fullmatch(event.name)
        if m is None:
            return
        job, session, kind = m["job"], m["n"], m["kind"] or m["mark"]
        lock = _perhaps(self._run / f"jobs/{job}.{session}.lock")
        own = f"{job}.{session}.{lock.get('token')}"
        ended = f"{job}.{session}.end" in names
        if event.came and kind == "lock" and lock:
            there = any(name.startswith((f"{own}.beat.", f"{own}.taken.")) for name in names)
            expect(there, f"{event.name} was put before its beat: it looks like one whose opener died", "9; 4.1")
        elif event.came and kind == "end":
            self._ended(event, names, own, lock)
        elif event.kind == "gone" and event.name.startswith(own) and kind in ("beat", "taken") and not ended:
            after = self._watcher.events[self._number + 1 : self._number + 2]
            renamed = bool(after) and after[0].kind == "moved" and after[0].name.startswith(own)
            expect(renamed, f"{event.name} was removed before the end of the session was put", "9; 4.3, 4.4")

    def _ended(self, event: Event, names: set[str], own: str, lock: Mapping[str, Any]) -> None:
        end = _perhaps(self._run / "jobs" / event.name)
        job_session = event.name.removesuffix(".end")
        if not lock or not end:
            return
        if end.get("token") != lock.get("token"):
            beats = [name for name in names if name.startswith(f"{own}.beat.")]
            expect(
                not beats,
                f"{event.name} was put by somebody else while {beats} stood: the beat is taken first, or the holder "
                "goes on",
                "9; 4.4",
            )
        elif end.get("status") != "crashed":
            claims = f"claimed/{job_session}/"
            held = [
                f"{where}/{name}" for where in self._stands if where.startswith(claims) for name in self._names(where)
            ]
            held = [path for path in held if path.count("/") == 3 and self._sure(path.rpartition("/")[0])]
            expect(not held, f"{event.name} was put before {held} was given back", "9; 4.3, 5.4")

    # Entries.

    def _true_name(self, event: Event, top: str, inner: str) -> None:
        if top == "queue" and event.folder == "queue" and event.name == "FINISHED":
            self._finished(event)
            return
        below = inner.split("/") if inner else []
        if top == "retry":
            if not below:
                return
            below = below[1:]
        entry = below[0] if below else event.name
        if _hidden(entry):
            return
        shown = f"{event.folder}/{event.name}"
        how = "an entry appears whole, by a link or a rename"
        made = event.kind == "made" and (event.is_folder or below)
        expect(not made, f"{shown} was made under its true name: {how}", "9, 4; 5.1, 5.6")
        expect(event.kind != "written", f"{shown} was written under its true name: {how}", "9, 4; 5.1, 5.6")

    def _finished(self, event: Event) -> None:
        session = _perhaps(self._run / "queue/FINISHED").get("main_session")
        if not event.came or not self._sure("jobs") or session is None:
            return
        again = any((e.folder, e.name) == ("queue", "FINISHED") for e in self._watcher.events[self._number + 1 :])
        ended = f"main.{session}.end" in self._names("jobs")
        expect(again or not ended, f"FINISHED of session {session} was written after its end", "9; 5.8")

    def _reserved(self, event: Event) -> None:
        entry = event.name.removesuffix(".json")
        if not event.name.endswith(".json") or event.name not in self._metas or not self._sure("queue"):
            return  # Who finds another's file under the name takes its meta back.
        expect(entry not in self._names("queue"), f"{entry} stood in queue/ before its meta was put", "9; 5.1")

    def _left_a_claim(self, event: Event, inner: str) -> None:
        owner, _, attempt = inner.partition("/")
        if not attempt.isdecimal() or _hidden(event.name) or not self._sure("evals"):
            return
        outcome = f"{event.name}.{attempt}.json"
        expect(
            outcome in self._names("evals"),
            f"claimed/{owner}/{attempt}/{event.name} was moved before the outcome {outcome} stood",
            "9, 5; 5.3",
        )

    def _pruned(self, event: Event, left: set[str]) -> None:
        rule = _perhaps(self._run / "best.json")
        mine = self._rank(event.name, rule)
        if not rule or mine is None:
            return
        ranks = [rank for name in left if not _hidden(name) and (rank := self._rank(name, rule)) is not None]
        better = sum(rank < mine for rank in ranks)
        keep = rule.get("keep", 1)
        expect(
            0 < keep <= better,
            f"{event.name} was removed from best/ while {better} better ones stood there, of {keep} to be kept",
            "9; 5.7",
        )

    def _rank(self, entry: str, rule: Mapping[str, Any]) -> tuple[bool, float, int, bytes] | None:
        """Where an entry stands among others, the best first; None where that is not known."""
        for name in folder.names(self._run / "evals"):
            m = folder.OUTCOME.fullmatch(name)
            if m is None or m["entry"] != entry:
                continue
            outcome = _perhaps(self._run / "evals" / name)
            if outcome.get("state") == "done":
                score, step = outcome.get("scores", {}).get(rule.get("tag")), outcome.get("step")
                if score is None or type(step) is not int:
                    return None
                value = float(score)
                no_number = value != value
                ordered = 0.0 if no_number else -value if rule.get("mode") == "max" else value
                return no_number, ordered, step, entry.encode("utf-8", "surrogateescape")
        return None


def _hidden(name: str) -> bool:
    """Whether it is no entry: hidden, on its way, or a name that is refused."""
    try:
        data = name.encode()
    except UnicodeEncodeError:
        return True
    return name.startswith(".") or name.endswith(".tmp") or len(data) > 200 or any(b < 32 or b == 127 for b in data)


def _perhaps(path: Path) -> dict[str, Any]:
    """A record; empty where it is not there or cannot be read."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
