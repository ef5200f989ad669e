"""What goes into an evaluation and what comes out, whoever runs it (protocol.md 5).

Does: the request, the result, and how a returned value becomes scores. Leaves to others: claims and outcomes
(``run.entries``), processes (``function``, ``command``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import orjson

from fsrun.core.values import as_number, numeric_leaves, shown, text_leaves

SAMPLES = "samples"
"""The key of a returned dict under which a list of dicts is no score: every prompt with its answer and grade."""
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
    time_limit: float | None = None
    """Seconds that this evaluation may take; None: no limit. It is ended when they are over."""
    deadline: float | None = None
    """When that is, as ``time.time()`` tells it."""

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
    """An evaluation that failed: ``reason`` in a few words, ``error`` as an outcome keeps it.

    ``samples``: what was answered by then, for whoever looks for the cause.
    """

    def __init__(self, reason: str, error: dict[str, Any] | None = None, *, samples: Any = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error
        self.samples = samples


class SkipEvaluation(Exception):
    """The user's code declined the entry."""


class Evaluator(Protocol):
    """Evaluates one entry at a time."""

    def check(self) -> None:
        """Raise ``UsageError`` where what is needed is missing or cannot be loaded, before anything is claimed."""
        ...

    def evaluate(self, request: Request) -> Result:
        """Return the scores; whatever user code does, only ``EvaluationError`` or ``SkipEvaluation`` is raised.

        ``UsageError`` says that what the evaluator was given can evaluate nothing at all.
        """
        ...

    def close(self) -> None:
        """End what was started."""
        ...


def score_tag(name: str) -> str:
    """The tag of a score as ``fsrun eval`` logs it: ``acc`` as ``eval/acc``, ``math/acc`` as it is."""
    return name if "/" in name else PREFIX + name


def result_of(returned: object) -> Result:
    """Read what an evaluation returned: a mapping of names to numbers, nested or not.

    Numbers become scores (``acc`` as ``eval/acc``, ``math/acc`` as it is); rows under ``samples`` are kept as such, the
    rest as text. A return value without a single number is an ``EvaluationError`` that says what it was: a silent gap
    in a curve helps nobody.
    """
    if not isinstance(returned, Mapping):
        raise EvaluationError(f"the evaluation returned {_name(returned)}, not a dict of scores")
    samples = None
    if SAMPLES in returned and (samples := samples_of(returned[SAMPLES])) is not None:
        returned = {name: value for name, value in returned.items() if name != SAMPLES}
    numbers, others = numeric_leaves(returned)
    if not numbers:
        raise EvaluationError(
            "the evaluation returned no numbers" if returned else "the evaluation returned an empty dict"
        )
    scores: dict[str, float] = {}
    for name, value in numbers.items():
        scores[score_tag(name)] = value
    return Result(scores, text_leaves(returned, others), samples=samples)


def samples_of(value: object) -> list[dict[str, Any]] | None:
    """Samples as rows of plain values, from a list of dicts, an Arrow table or a DataFrame; None: it is none of them.

    What is no text, number or truth value is kept as text, and so are numbers in a column that has text; NaN and the
    infinities, which no JSON holds, are null.
    """
    if hasattr(value, "to_pylist"):
        value = value.to_pylist()
    elif hasattr(value, "to_dict") and hasattr(value, "columns"):
        value = value.to_dict("records")
    if not isinstance(value, list) or not all(isinstance(row, Mapping) for row in value):
        return None
    rows = [{str(name): _plain(cell) for name, cell in row.items()} for row in value]
    texts = {name for row in rows for name, cell in row.items() if isinstance(cell, str)}
    return [
        {
            name: str(cell) if name in texts and cell is not None and not isinstance(cell, str) else cell
            for name, cell in row.items()
        }
        for row in rows
    ]


def _plain(value: object) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Mapping | list | tuple):
        return _as_text(value)
    try:
        number = as_number(value)
    except ValueError:
        return _as_text(value)
    return number if math.isfinite(number) else None


def _as_text(value: object) -> str:
    """A chat, a list or an object as text: JSON where it can be."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except Exception:  # noqa: BLE001 - an object of the user's may raise anything
        return shown(value)


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
