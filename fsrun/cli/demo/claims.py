"""What the demo claims, each checked against the files of the run after both processes have ended."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fsrun.cli.demo.plan import BEST, Plan, Steps
from fsrun.core import layout
from fsrun.core.ids import MAIN, is_entry
from fsrun.core.queue import Claim
from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.store import Store
from fsrun.run.check import check_run
from fsrun.run.inspect import read_evals
from fsrun.run.listing import read_run
from fsrun.run.places import queue_state, read_meta
from fsrun.run.reader import RunReader


@dataclass(frozen=True, slots=True)
class Checked:
    """A sentence, and whether the files say the same; ``found``: what they say where they do not."""

    text: str
    holds: bool
    found: str = ""


class Evidence:
    """The files of a run, read once."""

    def __init__(self, path: str, now_ns: int, score: str = BEST) -> None:
        fs = LocalFileSystem()
        self.score = score
        self.path = path
        self.reader = RunReader(path)
        self.outcomes = read_evals(fs, path)
        unit = Store(fs, path, MAIN, 0)
        self.queue = queue_state(unit)
        names = [entry for name in unit.names(layout.META) if (entry := layout.parse_meta_name(name))]
        self.handed_over = {name: meta.step for name in names if (meta := read_meta(unit, name))}
        self.kept = sorted(filter(is_entry, unit.names(layout.BEST)))
        self.jobs: list[dict[str, Any]] = read_run(fs, path, now_ns=now_ns)["jobs"]

    @property
    def done(self) -> list[dict[str, Any]]:
        """The outcomes ``done``, by step."""
        return sorted((o for o in self.outcomes if o["state"] == "done"), key=lambda o: (o["step"] or 0, o["entry"]))

    def best(self) -> dict[str, Any] | None:
        """The outcome with the highest score, of equal ones the earliest."""
        return max(
            self.done, key=lambda o: (o["scores"].get(self.score, float("-inf")), -(o["step"] or 0)), default=None
        )


def check(evidence: Evidence, plan: Plan, killed: list[Claim] | None) -> Iterator[Checked]:
    """Yield every claim of the demo. ``killed``: what the evaluators held that were killed; None: none was to be."""
    yield handed_over(evidence, plan)
    yield evaluated_once(evidence)
    yield counted_once(evidence, plan)
    if killed is not None:
        yield _lost_and_retried(evidence, killed)
    yield nothing_left(evidence)
    yield _best_kept(evidence)
    yield trained(evidence, plan)
    yield ended(evidence)
    yield valid(evidence)


def handed_over(evidence: Evidence, plan: Steps) -> Checked:
    """Each checkpoint of the plan has its meta."""
    steps = sorted(step for step in evidence.handed_over.values() if step is not None)
    text = f"{len(plan.checkpoint_steps)} checkpoints were handed over, at their steps"
    return Checked(text, steps == list(plan.checkpoint_steps), f"meta/ has steps {steps}")


def evaluated_once(evidence: Evidence) -> Checked:
    """Each has one outcome done, as its last."""
    counts = Counter(outcome["entry"] for outcome in evidence.done)
    wrong = {name: counts[name] for name in counts.keys() | evidence.handed_over.keys() if counts[name] != 1}
    last = {outcome["entry"]: outcome for outcome in sorted(evidence.outcomes, key=lambda o: o["attempt"])}
    wrong |= {name: outcome["state"] for name, outcome in last.items() if outcome["state"] != "done"}
    return Checked("each was evaluated: one outcome done, as its last attempt", not wrong, f"evals/ has {wrong}")


def counted_once(evidence: Evidence, plan: Steps) -> Checked:
    """Whatever was logged, the reader has one point a checkpoint, with the value of its outcome."""
    steps, values = evidence.reader.series(plan.best)
    points = list(zip(steps.tolist(), values.tolist(), strict=True))
    stored = evidence.reader.scalars([plan.best], all=True).num_rows
    expected = [(outcome["step"], outcome["scores"].get(plan.best)) for outcome in evidence.done]
    holds = points == expected and len(points) == stored == len(plan.checkpoint_steps)
    text = f"each was counted once: {plan.best} has {len(plan.checkpoint_steps)} points, the values of those outcomes"
    return Checked(text, holds, f"there are {len(points)} points of {stored} stored: {points}")


def _lost_and_retried(evidence: Evidence, killed: list[Claim]) -> Checked:
    lost = sorted((o["entry"], o["attempt"]) for o in evidence.outcomes if o["state"] == "lost")
    done = {outcome["entry"]: outcome["attempt"] for outcome in evidence.done}
    holds = bool(killed) and lost == sorted((claim.entry, claim.attempt) for claim in killed)
    holds = holds and all(done.get(entry, 0) > attempt for entry, attempt in lost)
    attempts = ", ".join(f"{claim.entry}, attempt {claim.attempt}" for claim in killed)
    counted = "1 attempt was" if len(killed) == 1 else f"{len(killed)} attempts were"
    return Checked(f"{counted} lost with the killed evaluator ({attempts}) and made again", holds, f"lost: {lost}")


def nothing_left(evidence: Evidence) -> Checked:
    """Nothing waits, is claimed or was given up."""
    queue = evidence.queue
    left = {"waiting": queue.waiting, "claimed": queue.claimed, "failed": queue.failed}
    left = {name: found for name, found in left.items() if found}
    return Checked("queue/, retry/, claimed/ and failed/ are empty", not left, f"there are {left}")


def _best_kept(evidence: Evidence) -> Checked:
    best = evidence.best()
    if best is None:
        return Checked("best/ holds the best checkpoint", False, "no checkpoint has a score")
    score = best["scores"].get(BEST, float("nan"))
    text = f"best/ holds {best['entry']} alone: the highest {BEST}, {score:.4f}"
    there = os.path.isfile(os.path.join(evidence.path, layout.BEST, best["entry"]))
    return Checked(text, there and evidence.kept == [best["entry"]], f"best/ has {evidence.kept}")


def trained(evidence: Evidence, plan: Steps) -> Checked:
    """The trainer logged every step."""
    steps, _ = evidence.reader.series("train/loss", job=MAIN)
    holds = steps.tolist() == list(range(1, plan.steps + 1))
    return Checked(f"train/loss has {plan.steps} points, one a step", holds, f"there are {len(steps)}")


def ended(evidence: Evidence) -> Checked:
    """Both jobs closed their sessions as finished."""
    ends = {job["job"]: job["status"] if job["closed"] else "open" for job in evidence.jobs}
    return Checked("both jobs ended as finished", ends == {MAIN: "finished", "eval": "finished"}, f"they are {ends}")


def valid(evidence: Evidence) -> Checked:
    """What ``fsrun check`` says of the run."""
    errors = [
        f"{finding.file}: {finding.message}" for finding in check_run(evidence.path) if finding.severity == "error"
    ]
    return Checked("the run folder is valid (fsrun check)", not errors, "; ".join(errors[:3]))
