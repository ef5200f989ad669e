"""From single grades to the numbers of a set: mean, standard error, pass@k, and the shares that are no score.

Does: the arithmetic, grouped by row (two rows with the same prompt stay two), each set by its own counts. Leaves to
others: where grades come from (``adapters.grading``), whether too many failed (``adapters.measure``).

The rules, where samples are missing: a row's mean is that of its graded samples, the score is the mean of the rows'
means, so each row counts alike however many of its answers were graded; a row without a graded sample is not in it.
pass@k takes the rows with at least k samples that were graded right or wrong; ``short`` counts the others. Shares are
of all samples. What there is nothing of is None, and no score: never 0, never NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from fsrun.core.errors import UsageError

FAILED = frozenset({"abort", "error", "unsent"})
"""Finishes without an answer."""
_PREFIX = "eval/"


@dataclass(frozen=True, slots=True)
class SampleGrade:
    """One sample of one row, as far as the numbers go."""

    row: int
    finish: str
    """``stop``, ``length``, ``abort``, ``error`` or ``unsent``; the last three have no answer."""
    score: float | None = None
    correct: bool | None = None
    response_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Tally:
    """The numbers of one set."""

    rows: int = 0
    samples: int = 0
    graded: int = 0
    truncated: int = 0
    """Answers that were cut at the longest that was allowed; they are graded like others."""
    failed: int = 0
    """Samples without an answer: error, abort, unsent."""
    ungraded: int = 0
    """Answers that the grader gave no score for."""
    mean: float | None = None
    stderr: float | None = None
    """Standard error of ``mean``, clustered by row; None below two rows."""
    response_tokens: float | None = None
    """Mean over the answers."""
    pass_at: dict[int, float] = field(default_factory=dict)
    short: dict[int, int] = field(default_factory=dict)
    """For each k the rows that had fewer than k samples graded right or wrong; absent where none had."""

    def scores(self, name: str) -> dict[str, float]:
        """The numbers by tag, for the set of this name; those that are None are absent."""
        if not self.samples:
            return {}
        base = _PREFIX + name
        found: dict[str, float | None] = {
            base: self.mean,
            f"{base}/stderr": self.stderr,
            **{f"{base}/pass@{k}": value for k, value in self.pass_at.items()},
            f"{base}/truncated": self.truncated / self.samples,
            f"{base}/failed": self.failed / self.samples,
            f"{base}/ungraded": self.ungraded / self.samples,
            f"{base}/response_tokens": self.response_tokens,
        }
        return {tag: value for tag, value in found.items() if value is not None}


def tally(samples: Iterable[SampleGrade], pass_k: Iterable[int] = ()) -> Tally:
    """Count the samples of one set, in any order. Errors: ``UsageError`` for a k below 1."""
    wanted = sorted(set(pass_k))
    if wanted and wanted[0] < 1:
        raise UsageError(f"pass@{wanted[0]}: k is at least 1")
    scores: dict[int, list[float]] = {}
    solved: dict[int, tuple[int, int]] = {}
    rows: set[int] = set()
    total = truncated = failed = ungraded = tokens = 0
    for sample in samples:
        total += 1
        rows.add(sample.row)
        if sample.finish in FAILED:
            failed += 1
            continue
        truncated += sample.finish == "length"
        tokens += sample.response_tokens
        if sample.score is None or not math.isfinite(sample.score):
            ungraded += 1
            continue
        scores.setdefault(sample.row, []).append(sample.score)
        if sample.correct is not None:
            n, c = solved.get(sample.row, (0, 0))
            solved[sample.row] = n + 1, c + sample.correct
    answered = total - failed
    mean, stderr = _mean([math.fsum(each) / len(each) for each in scores.values()])
    passed = {k: [pass_at(n, c, k) for n, c in solved.values() if n >= k] for k in wanted}
    return Tally(
        rows=len(rows),
        samples=total,
        graded=answered - ungraded,
        truncated=truncated,
        failed=failed,
        ungraded=ungraded,
        mean=mean,
        stderr=stderr,
        response_tokens=tokens / answered if answered else None,
        pass_at={k: math.fsum(each) / len(each) for k, each in passed.items() if each},
        short={k: len(rows) - len(each) for k, each in passed.items() if len(each) < len(rows)},
    )


def pass_at(n: int, c: int, k: int) -> float:
    """The chance that k of n samples, drawn without return, hold one of the c solved ones (unbiased pass@k)."""
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def _mean(values: list[float]) -> tuple[float | None, float | None]:
    """Mean and its standard error, as far as there is one."""
    if not values:
        return None, None
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1) / count)
