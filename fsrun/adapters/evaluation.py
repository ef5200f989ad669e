"""What goes into an evaluation and what comes out, whoever runs it (protocol.md 5).

Does: the request, the result, and how a returned value becomes scores. Leaves to others: claims and outcomes
(``run.entries``), processes (``function``, ``command``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from fsrun.core.values import numeric_leaves, text_leaves

PREFIX = "eval/"
"""Put before a score whose name has no ``/`` of its own."""


@dataclass(frozen=True, slots=True)
class Request:
    """What an evaluation is told. The function gets it as its second argument, where it takes two."""

    path: str
    """Where the checkpoint stands while it is evaluated: a file or a folder. Not to be changed."""
    entry: str
    step: int | None
    attempt: int
    run: str
    """Path of the run folder."""
    config: dict[str, Any] = field(default_factory=dict)
    """The main job's config."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the way to another process."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Result:
    """Scores by tag, and what was returned beside them, as text."""

    scores: dict[str, float]
    details: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] | None = None
    """What answered: version, dtype, parallelism, weights."""
    samples: Any = None
    """Every prompt with its answer and grade: an Arrow table, or a list of dicts."""
    report: bool = False
    """Whether ``eval/lag_steps`` and ``eval/duration_s`` are points too."""


class EvaluationError(Exception):
    """An evaluation that failed: ``reason`` in a few words, ``error`` as an outcome keeps it."""

    def __init__(self, reason: str, error: dict[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error


class SkipEvaluation(Exception):
    """The user's code declined the entry."""


class Evaluator(Protocol):
    """Evaluates one entry at a time."""

    def evaluate(self, request: Request) -> Result:
        """Return the scores; whatever user code does, only ``EvaluationError`` or ``SkipEvaluation`` is raised."""
        ...

    def close(self) -> None:
        """End what was started."""
        ...


def score_tag(name: str) -> str:
    """The tag of a score as ``fsrun eval`` logs it: ``acc`` as ``eval/acc``, ``math/acc`` as it is."""
    return name if "/" in name else PREFIX + name


def result_of(returned: object) -> Result:
    """Read what an evaluation returned: a mapping of names to numbers, nested or not.

    Numbers become scores (``acc`` as ``eval/acc``, ``math/acc`` as it is); the rest is kept as text. A return value
    without a single number is an ``EvaluationError`` that says what it was: a silent gap in a curve helps nobody.
    """
    if not isinstance(returned, Mapping):
        raise EvaluationError(f"the evaluation returned {_name(returned)}, not a dict of scores")
    numbers, others = numeric_leaves(returned)
    if not numbers:
        raise EvaluationError(
            "the evaluation returned no numbers" if returned else "the evaluation returned an empty dict"
        )
    scores: dict[str, float] = {}
    for name, value in numbers.items():
        scores[score_tag(name)] = value
    return Result(scores, text_leaves(returned, others))


def kept(samples: Any, count: int | None) -> Any:
    """At most the first ``count`` samples of each set (``set`` of a row) of a list of dicts; None: all; 0: none.

    Tables come back as they are: who makes them has chosen already.
    """
    if count is None or not isinstance(samples, list):
        return samples
    left: dict[object, int] = {}
    found = []
    for row in samples:
        name = str(row.get("set"))
        if left.setdefault(name, count) > 0:
            left[name] -= 1
            found.append(row)
    return found or None


def _name(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
