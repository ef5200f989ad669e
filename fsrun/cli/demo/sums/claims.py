"""What the demo that generates claims: each checked against the files of the run, and against transformers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fsrun.cli.demo import claims
from fsrun.cli.demo.claims import Checked, Evidence
from fsrun.cli.demo.sums.plan import BEST, HELD_OUT, SumsPlan, answer, split
from fsrun.core import layout

UNTRAINED, TRAINED = 0.1, 0.9


@dataclass(frozen=True, slots=True)
class Compared:
    """One snapshot, as the fleet answered and as transformers does."""

    step: int
    entry: str
    fleet: float
    transformers: float
    same: int
    """Prompts with the very same answer, of ``HELD_OUT``."""
    versions: frozenset[str]
    """Weight versions of the fleet's answers."""


def compare(evidence: Evidence) -> list[Compared]:
    """Generate with transformers what the fleet answered, from the snapshots that stand in best/."""
    from fsrun.cli.demo.sums.model import generate

    sums = split()[1]
    found = []
    for outcome in evidence.done:
        folder = os.path.join(evidence.path, layout.BEST, outcome["entry"])
        if not os.path.isdir(folder):
            continue
        theirs = _answers(evidence, outcome["entry"])
        ours = [text.strip() for text in generate(folder, sums)]
        right = sum(text == answer(terms) for text, terms in zip(ours, sums, strict=True))
        found.append(
            Compared(
                outcome["step"],
                outcome["entry"],
                float(outcome["scores"].get(BEST, float("nan"))),
                right / len(sums),
                sum(theirs.get(row, (None,))[0] == text for row, text in enumerate(ours)),
                frozenset(version for _, version in theirs.values()),
            )
        )
    return found


def _answers(evidence: Evidence, entry: str) -> dict[int, tuple[str, str]]:
    """The kept samples of an entry: row -> (answer, weight version)."""
    rows: list[dict[str, Any]] = evidence.reader.samples(entry=entry).to_pylist()
    return {row["row"]: ((row["answer"] or "").strip(), row["weight_version"] or "") for row in rows}


def check(evidence: Evidence, plan: SumsPlan, compared: list[Compared]) -> Iterator[Checked]:
    """Yield every claim."""
    yield claims.handed_over(evidence, plan)
    yield claims.evaluated_once(evidence)
    yield claims.counted_once(evidence, plan)
    yield from about_answers(compared, plan)
    yield claims.nothing_left(evidence)
    yield claims.trained(evidence, plan)
    yield claims.ended(evidence)
    yield claims.valid(evidence)


def about_answers(compared: list[Compared], plan: SumsPlan) -> Iterator[Checked]:
    """Yield the claims about what the fleet answered."""
    yield _learned(compared)
    yield _equal(compared, plan)
    yield _same(compared)
    yield _own_weights(compared)


def _learned(compared: list[Compared]) -> Checked:
    scores = [found.fleet for found in compared] or [float("nan")]
    text = f"the model learned to add: {BEST} rose from {scores[0]:.3f} to {scores[-1]:.3f}"
    return Checked(text, scores[0] < UNTRAINED and scores[-1] > TRAINED, f"it went {scores}")


def _equal(compared: list[Compared], plan: SumsPlan) -> Checked:
    wrong = {found.step: (found.fleet, found.transformers) for found in compared if found.fleet != found.transformers}
    text = f"{BEST} equals the accuracy of transformers' generate on each of the {len(plan.checkpoint_steps)} snapshots"
    holds = not wrong and len(compared) == len(plan.checkpoint_steps)
    return Checked(text, holds, f"{len(compared)} snapshots compared; different at {wrong}")


def _same(compared: list[Compared]) -> Checked:
    wrong = {found.step: found.same for found in compared if found.same != HELD_OUT}
    text = f"and of {HELD_OUT * len(compared):,} answers each is the same"
    return Checked(text, bool(compared) and not wrong, f"equal answers of {HELD_OUT}, by step: {wrong}")


def _own_weights(compared: list[Compared]) -> Checked:
    versions = [found.versions for found in compared]
    holds = all(len(one) == 1 and "" not in one for one in versions) and len(set(versions)) == len(versions)
    return Checked("each snapshot was answered by its own weights alone", holds, f"weight versions: {versions}")
