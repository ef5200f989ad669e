"""Which evaluated entries are kept in best/ (protocol.md 5, "Best").

Does: the rule, the ranking, what may be deleted. Leaves to others: reading scores and deleting (``run.places``).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from fsrun.core import codec
from fsrun.core.errors import UsageError
from fsrun.core.records import BestRule
from fsrun.core.values import as_number, check_tag

MODES = ("max", "min")


def parse_rule(best: object, keep: object = 1) -> BestRule:
    """Read ``best="max:eval/acc"`` and ``keep``.

    ``keep`` says how many are kept, 0 keeps all. A direction is required: guessed from a name it would keep the worst
    models of somebody. Errors: ``UsageError`` that says how to write it.
    """
    mode, colon, tag = best.partition(":") if isinstance(best, str) else ("", "", "")
    if not colon or mode not in MODES:
        raise UsageError(
            f"best={best!r} names no direction: write 'max:TAG' where higher is better or 'min:TAG' where lower is "
            f"better, such as best='max:eval/acc'"
        )
    problem = check_tag(tag)
    if problem:
        raise UsageError(f"best={best!r}: {problem}")
    if type(keep) is not int or keep < 0:
        raise UsageError(f"keep={keep!r}: use a whole number of at least 1, or 0 to keep everything")
    return BestRule(mode=mode, tag=tag, keep=keep)


def check_same(wanted: BestRule, stands: BestRule, path: str) -> None:
    """Raise ``UsageError`` where the run has another rule than the wanted one."""
    if (wanted.mode, wanted.tag, wanted.keep) != (stands.mode, stands.tag, stands.keep):
        raise UsageError(
            f"{path} says best='{stands.mode}:{stands.tag}', keep={stands.keep}, this evaluator "
            f"best='{wanted.mode}:{wanted.tag}', keep={wanted.keep}: use the rule of the run, or remove that file "
            f"(what was deleted under it stays deleted)"
        )


def explain_missing(tag: str, scores: Collection[str]) -> str:
    """Say that the score of the rule is missing, which are there, and which of them may be meant."""
    if not scores:
        return f"has no score {tag!r}, and no other"
    last = tag.rpartition("/")[2]
    near = [name for name in sorted(scores) if name.rpartition("/")[2] == last]
    near = near or difflib.get_close_matches(tag, sorted(scores), 1)
    names = ", ".join(sorted(scores)[:5]) + (", ..." if len(scores) > 5 else "")
    return f"has no score {tag!r}, it has {names}" + (f"; was {near[0]!r} meant?" if near else "")


@dataclass(frozen=True, slots=True)
class Kept:
    """An entry in best/ with the score of its ``done`` outcome; None: not known, or without the rule's tag."""

    entry: str
    score: float | None
    step: int | None = None


def score_of(scores: object, tag: str) -> float | None:
    """The score under ``tag`` in a scores mapping (of an outcome: words stand for NaN and infinities), or None."""
    value = scores.get(tag) if isinstance(scores, dict) else None
    if isinstance(value, str):
        return codec.WORDS.get(value)
    try:
        return float(as_number(value))
    except (ValueError, OverflowError):
        return None


def rank(kept: Iterable[Kept], mode: str) -> list[Kept]:
    """The entries that have a score, best first: by score (NaN worst), then the earlier step, then the name."""

    def key(item: Kept) -> tuple[bool, float, bool, int, str]:
        score = item.score if item.score is not None else math.nan
        worst = math.isnan(score)
        value = 0.0 if worst else (-score if mode == "max" else score)
        return worst, value, item.step is None, item.step or 0, item.entry

    return sorted((item for item in kept if item.score is not None), key=key)


def surplus(kept: Iterable[Kept], rule: BestRule) -> list[str]:
    """The entries that may be deleted: those with at least ``keep`` strictly better ones beside them."""
    return [item.entry for item in rank(kept, rule.mode)[rule.keep :]] if rule.keep else []
