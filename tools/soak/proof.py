"""What must hold once a run is drained, proved from its files and the children's journals.

Reads locks, logs, outcomes and places by itself; the library's own reader is one more witness, that has to agree.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .chaos import Violation
from .journal import read

if TYPE_CHECKING:
    from .chaos import Round

SURE = 1.5
"""Seconds of a process's own running time after which what it logged must not be lost by its death."""
SURE_IN_TROUBLE = 5.0
"""The same where the folder failed meanwhile: after 2 s of that, lines go into a local file."""
PER_LIFE = 1_000_000
KEEP = 2
GIVEN_UP = {"failed": 3, "lost": 10}
Events = list[dict[str, Any]]


@dataclass
class Life:
    """One child, from its own journal and the soak's."""

    number: int
    events: Events
    killed: float | None = None
    """When it was ended without being asked: SIGKILL, or SIGTERM, which gives it five seconds."""
    stopped: list[tuple[float, float]] = field(default_factory=list)

    def all(self, event: str) -> Events:
        return [e for e in self.events if e["event"] == event]

    @property
    def job(self) -> str | None:
        opened = self.all("opened")
        return opened[0]["job"] if opened else None

    @property
    def sessions(self) -> list[int]:
        return [e["session"] for e in self.events if e["event"] in ("opened", "continued")]

    def ran(self, start: float, end: float) -> float:
        """Seconds between two moments in which it was not stopped."""
        return end - start - sum(max(0.0, min(end, b) - max(start, a)) for a, b in self.stopped)

    def must_stand(self, moment: float, troubles: list[tuple[float, float]]) -> bool:
        """Whether what it did at ``moment`` must not have been lost."""
        quiet = self.all("quiet")
        end = min([t for t in (self.killed, quiet[0]["at"] if quiet else None) if t is not None], default=None)
        if end is None:
            return True
        if any(e["at"] > moment for e in self.all("flushed")):
            return True
        troubled = any(a < end and b > moment for a, b in troubles)
        return self.ran(moment, end) > (SURE_IN_TROUBLE if troubled else SURE)


@dataclass
class Evidence:
    run: Path
    unit: Path
    lives: list[Life]
    troubles: list[tuple[float, float]]
    watched: Path
    zombie_watcher: bool
    """Whether a watcher was stopped, so that another one may have done its work meanwhile."""

    def names(self, *folder: str, unit: bool = False) -> list[str]:
        path = (self.unit if unit else self.run).joinpath(*folder)
        return sorted(p.name for p in path.iterdir() if not p.name.startswith(".")) if path.is_dir() else []

    def record(self, *path: str, unit: bool = False) -> dict[str, Any]:
        return json.loads((self.unit if unit else self.run).joinpath(*path).read_bytes())  # type: ignore[no-any-return]


def prove(round_: Round) -> dict[str, int]:
    """Raise ``Violation`` with the first thing that is wrong; return how much was looked at."""
    evidence = gather(round_)
    proved = {}
    for what, proof in (
        ("points", prove_points),
        ("entries", prove_entries),
        ("sessions", prove_sessions),
    ):
        proved[what] = proof(evidence)
    round_.kinds.update(f"fault: {e['kind']}" for life in evidence.lives for e in life.all("fault"))
    ends = [evidence.record("jobs", name) for name in evidence.names("jobs") if name.endswith(".end")]
    proved["sessions closed by others"] = sum(end["status"] == "crashed" for end in ends)
    return proved


def gather(round_: Round) -> Evidence:
    lives: dict[int, Life] = {}
    for path in sorted(round_.journals.glob("*.jsonl")):
        if path.name != "chaos.jsonl":
            number = int(path.name.partition(".")[0])
            lives[number] = Life(number, read(path))
    troubles = []
    stops: dict[int, float] = {}
    watchers: set[int] = set()
    zombie = False
    for e in read(round_.journals / "chaos.jsonl"):
        said = e.get("said", {})
        if e["event"] == "control" and any(k in said for k in ("full", "broken", "lost", "slow")):
            troubles.append((e["at"], said["until"]))
        if e["event"] == "started" and e["slot"] == "watch":
            watchers.add(e["life"])
        zombie = zombie or (e["event"] == "signal" and e["number"] == 19 and e["life"] in watchers)
        life = lives.get(e.get("life", 0))
        if e["event"] != "signal" or life is None:
            continue
        if e["number"] in (9, 15):
            life.killed = min(life.killed or e["at"], e["at"])
        elif e["number"] == 19:
            stops[life.number] = e["at"]
        elif life.number in stops:
            life.stopped.append((stops.pop(life.number), e["at"]))
        if e["number"] == 9 and life.number in stops:
            life.stopped.append((stops.pop(life.number), e["at"]))
    return Evidence(round_.place.path(), Path(round_.unit), list(lives.values()), troubles, round_.watched, zombie)


# Points.


def complete_lines(data: bytes) -> Events:
    data = data.partition(b"\0")[0]
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].split(b"\n") if line.startswith(b"{")]


def stored(evidence: Evidence, job: str) -> list[list[tuple[int, Events]]]:
    """The lines that the fences leave, by session; sessions that continue each other together."""
    locks = {}
    for name in evidence.names("jobs"):
        parts = name.split(".")
        if parts[0] == job and parts[-1] == "lock":
            locks[int(parts[1])] = evidence.record("jobs", name)
    groups: list[list[tuple[int, Events]]] = []
    logs = evidence.names("scalars")
    for number in sorted(locks):
        name = f"{job}.{number}.jsonl"
        data = (evidence.run / "scalars" / name).read_bytes() if name in logs else b""
        if number + 1 in locks:
            data = data[: (locks[number + 1]["fence"] or {}).get(f"scalars/{name}", 0)]
        lines = complete_lines(data)
        pieces = [n for n in logs if n.startswith(f"{job}.{number}.s")]
        for piece in sorted(pieces, key=lambda n: int(n.split(".")[2][1:])):
            lines += complete_lines((evidence.run / "scalars" / piece).read_bytes())
        if locks[number]["continues"]:
            groups[-1].append((number, lines))
        else:
            groups.append([(number, lines)])
    return groups


def prove_points(evidence: Evidence) -> int:
    """No point lost but those of a process's last second, none twice; the library reads the same."""
    looked = 0
    for job, tag in (("main", "train/loss"), ("analysis", "side/value")):
        groups = stored(evidence, job)
        found: dict[float, list[int]] = defaultdict(list)
        for group in groups:
            for number, lines in group:
                for line in lines:
                    if tag in line:
                        found[line[tag]].append(number)
        for value, sessions in found.items():
            if len(sessions) > 1:
                raise Violation(
                    f"{job}: the point {tag} = {value:.0f} stands {len(sessions)} times, in sessions {sessions}"
                )
        for life in evidence.lives:
            for point in (e for e in life.all("logged") if e["tag"] == tag):
                looked += 1
                if point["value"] not in found and life.must_stand(point["at"], evidence.troubles):
                    raise Violation(lost(evidence, life, point, sorted(found)))
        agree(evidence, job, tag, groups)
    return looked


def lost(evidence: Evidence, life: Life, point: dict[str, Any], found: list[float]) -> str:
    own = [e for e in life.all("logged") if e["tag"] == point["tag"]]
    missing = [e["value"] for e in own if e["value"] not in set(found)]
    return (
        f"life {life.number} ({life.job}, sessions {life.sessions}) logged {point['tag']} = {point['value']:.0f} at "
        f"{point['at']:.3f}, and it is nowhere. Of its {len(own)} points {len(missing)} are missing: {missing[:5]} ... "
        f"{missing[-3:]}; ended {life.killed}, stopped {life.stopped}, quiet {life.all('quiet')}, warned "
        f"{[e['text'] for e in life.all('warned')]}"
    )


def agree(evidence: Evidence, job: str, tag: str, groups: list[list[tuple[int, Events]]]) -> None:
    """The library's reader gives what follows from these lines by protocol.md 8.3."""
    import fsrun

    counted: dict[int, float] = {}
    for group in groups:
        own = {line["step"]: line[tag] for _, lines in group for line in lines if tag in line}
        if own and job == "main":
            counted = {step: value for step, value in counted.items() if step < min(own)}
        counted |= own
    table = fsrun.open(evidence.run).scalars(tag, jobs=job)
    given = dict(zip(table["step"].to_pylist(), table["value"].to_pylist(), strict=True))
    if given != counted or len(given) != table.num_rows:
        differ = sorted(set(given.items()) ^ set(counted.items()))
        raise Violation(
            f"{job}: the reader and the files differ in {len(differ)} points of {tag}, such as {differ[:6]}"
        )


# Entries.


def prove_entries(evidence: Evidence) -> int:
    """Every entry that was handed over has one outcome that closes it, which is the last; nothing waits."""
    outcomes: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for name in evidence.names("evals"):
        entry, number, suffix = name.rsplit(".", 2)
        if suffix == "json":
            outcomes[entry][int(number)] = evidence.record("evals", name)
    for entry, attempts in outcomes.items():
        prove_entry(entry, attempts)
    waiting = [n for n in evidence.names("queue", unit=True) if n != "FINISHED" and not n.endswith(".tmp")]
    for folder in ("retry", "claimed"):
        root = evidence.unit / folder
        waiting += [
            str(p.relative_to(evidence.unit)) for p in root.rglob("*") if is_entry_at(p.relative_to(root), folder)
        ]
    if waiting:
        raise Violation(f"the queue was drained, and yet there is {waiting}")
    prove_handed_over(evidence, outcomes)
    prove_settled(evidence, outcomes)
    prove_samples(evidence, outcomes)
    prove_best(evidence, outcomes)
    return len(outcomes)


def is_entry_at(path: Path, folder: str) -> bool:
    return len(path.parts) == (2 if folder == "retry" else 3)


def prove_entry(entry: str, attempts: dict[int, dict[str, Any]]) -> None:
    states = [attempts[k]["state"] for k in sorted(attempts)]
    if sorted(attempts) != list(range(1, len(attempts) + 1)):
        raise Violation(f"{entry} has outcomes of the attempts {sorted(attempts)}: one is missing")
    counts: Counter[str] = Counter()
    closing = []
    for attempt, state in enumerate(states, 1):
        counts[state] += 1
        if state in ("done", "skipped") or counts[state] == GIVEN_UP.get(state):
            closing.append(attempt)
    if closing != [len(states)]:
        raise Violation(f"{entry} must be closed by its last outcome and by no other; its outcomes are {states}")


def prove_handed_over(evidence: Evidence, outcomes: dict[str, dict[int, dict[str, Any]]]) -> None:
    handed = []
    for life in evidence.lives:
        for e in life.all("handed"):
            near = any(e["at"] - 1.5 < f["at"] < e["at"] + SURE_IN_TROUBLE for f in life.all("fault"))
            if e["name"] is not None and not near and life.must_stand(e["at"], evidence.troubles):
                handed.append((e["name"], e["value"], f"life {life.number} handed it over at {e['at']:.3f}"))
        handed += [
            (e["name"], e["value"], "a plain writer put it") for e in life.all("put") if e["name"].startswith("p")
        ]
    sources: dict[str, list[str]] = defaultdict(list)
    for name in evidence.names("meta", unit=True):
        sources[evidence.record("meta", name, unit=True)["source"]].append(name.removesuffix(".json"))
    for path in evidence.watched.glob("*.ck"):
        entries = [entry for entry in sources[str(path)] if entry in outcomes]
        # One that was stopped between its look and its hand-over knows nothing of what another did meanwhile.
        if not entries or (len(entries) > 1 and not evidence.zombie_watcher):
            raise Violation(
                f"{path} is watched; it must have been handed over once, and was as {entries} ({sources[str(path)]})"
            )
        handed.append((entries[0], float(path.read_bytes().partition(b"\n")[0]), "it was watched"))
    known = {name for name, _, _ in handed}
    for given, value, why in handed:
        # A claim that failed with an error may have happened: the next one takes another use of the name (5.2).
        others = [e for e in outcomes if family(e) == family(given) and e not in known]
        name = next((e for e in (given, *others) if e in outcomes and closes_with(outcomes[e], value)), None)
        if name is None:
            raise Violation(f"{given}: {why}, value {value:.0f}, and no outcome of it says so (others: {others})")


def family(entry: str) -> tuple[str, str]:
    """A name without the mark of its use: X and X~2 are one."""
    base, dot, suffix = entry.rpartition(".") if "." in entry else (entry, "", "")
    return re.sub(r"~\d+\Z", "", base), dot + suffix


def closes_with(attempts: dict[int, dict[str, Any]], value: float) -> bool:
    last = attempts[max(attempts)]
    return last["state"] != "done" or last["scores"] == {"acc": value}


def prove_settled(evidence: Evidence, outcomes: dict[str, dict[int, dict[str, Any]]]) -> None:
    """What an evaluator was told counts is what stands."""
    for life in evidence.lives:
        for e in life.all("settled"):
            stands = outcomes.get(e["name"], {}).get(e["attempt"], {})
            if e["counts"] and (stands.get("state") != e["state"] or stands.get("session") not in life.sessions):
                raise Violation(
                    f"life {life.number} (sessions {life.sessions}) was told that this counts: {e}; there is {stands}"
                )


def prove_samples(evidence: Evidence, outcomes: dict[str, dict[int, dict[str, Any]]]) -> None:
    """Samples that an outcome names are there, whole, and of what it is about; no others stand without an outcome."""
    import pyarrow.parquet as pq

    suffix = ".samples.parquet"
    there = {name.removesuffix(suffix) for name in evidence.names("evals") if name.endswith(suffix)}
    known = {
        f"{entry}.{attempt}": stands for entry, attempts in outcomes.items() for attempt, stands in attempts.items()
    }
    if lost := there - known.keys():
        raise Violation(f"samples stand without an outcome: {sorted(lost)}")
    for key, stands in known.items():
        named = stands.get("samples")
        if named is None:
            continue
        path = evidence.run / "evals" / f"{key}{suffix}"
        data = path.read_bytes() if path.exists() else b""
        if (len(data), hashlib.sha256(data).hexdigest()) != (named["size"], named["sha256"]):
            raise Violation(f"{path} is not what its outcome names: {named}")
        scores = pq.read_table(path, partitioning=None)["score"].to_pylist()
        if scores != [stands["scores"]["acc"]] * named["rows"]:
            raise Violation(f"{path} holds the samples of another: {stands}, {scores[:3]}")


def prove_best(evidence: Evidence, outcomes: dict[str, dict[int, dict[str, Any]]]) -> None:
    """The best stand in best/, what was given up in failed/; each score counts once as a point."""
    import fsrun

    last = {entry: attempts[max(attempts)] for entry, attempts in outcomes.items()}
    scores = {entry: o["scores"]["acc"] for entry, o in last.items() if o["state"] == "done"}
    best = sorted(scores, key=lambda entry: -scores[entry])[:KEEP]
    missing = set(best) - set(evidence.names("best"))
    if missing:
        raise Violation(f"the {KEEP} best are {best}; not in best/: {sorted(missing)}")
    given_up = {entry for entry, o in last.items() if o["state"] in GIVEN_UP}
    if given_up != set(evidence.names("failed", unit=True)):
        raise Violation(f"given up were {sorted(given_up)}; failed/ has {evidence.names('failed', unit=True)}")
    points = Counter(fsrun.open(evidence.run).scalars("acc", all=True)["value"].to_pylist())
    wanted = Counter(scores.values())
    if points != wanted:
        raise Violation(f"of the scores, these do not count once: {(points - wanted) + (wanted - points)}")


# Sessions.


def prove_sessions(evidence: Evidence) -> int:
    """No session number twice, and no moment at which two sessions of a job could do protected work."""
    looked = 0
    for job in ("main", "analysis", "eval", "eval2"):
        owners: dict[int, Life] = {}
        spans: dict[int, tuple[float, float]] = {}
        for life in evidence.lives:
            if life.job != job:
                continue
            for number in life.sessions:
                if owners.setdefault(number, life) is not life:
                    raise Violation(
                        f"session {number} of {job} was opened by the lives {owners[number].number} and {life.number}"
                    )
            for e in life.all("held"):
                first, last = spans.get(e["session"], (e["at"], e["since"]))
                spans[e["session"]] = min(first, e["at"]), max(last, e["since"])
        until, holder = 0.0, 0
        for number in sorted(spans):
            first, last = spans[number]
            if until > first:
                raise Violation(
                    f"{job}: session {holder} was still protected {until - first:.3f} s after session {number} was "
                    f"(lives {owners[holder].number} and {owners[number].number}, at {first:.3f})"
                )
            if last > until:
                until, holder = last, number
        looked += len(spans)
    return looked
