"""The graders of a plan: one ``Grading`` for each that its sets name, kept from one evaluation to the next."""

from __future__ import annotations

from typing import Any

from fsrun.adapters.evaluation import EvaluationError
from fsrun.adapters.grading import Grading
from fsrun.adapters.plan import EvalPlan
from fsrun.core.errors import UsageError


class Gradings:
    """Graders by name; started when they are first asked. ``with`` it, or ``close`` it.

    After a crash of this process: its grading processes notice that, and end.
    """

    def __init__(self, plan: EvalPlan) -> None:
        self._limit = plan.grade_limit
        self._specs = {one.grader: one.grader_sha256 for one in plan.sets if one.grader is not None}
        self._found: dict[str, Grading] = {}

    def __enter__(self) -> Gradings:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def check(self) -> None:
        """Load all graders now; raises ``UsageError`` where one cannot be, before anything is claimed."""
        for spec in sorted(self._specs):
            self._grading(spec).check()

    def get(self, spec: str) -> Grading:
        """The grader of this name; raises ``EvaluationError`` where there is none."""
        try:
            return self._grading(spec)
        except UsageError as error:
            raise EvaluationError(str(error)) from error

    def close(self) -> None:
        """End their processes."""
        while self._found:
            self._found.popitem()[1].close()

    def _grading(self, spec: str) -> Grading:
        if spec not in self._found:
            self._found[spec] = Grading(spec, self._limit, sha256=self._specs.get(spec))
        return self._found[spec]


def in_line(spec: str) -> bool:
    """Whether a grader answers at once, in this process; the others are worth a queue."""
    return spec != "math" and ":" not in spec
