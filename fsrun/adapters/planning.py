"""From settings and files to a plan that can start: sets looked at, graders chosen, all of it told and recorded.

Does: everything that can be found wrong before an engine is asked. Leaves to others: settings (``settings``), reading
sets (``datasets``), printing (``cli``).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from fsrun.adapters import datasets
from fsrun.adapters.graders import NAMES
from fsrun.adapters.plan import EvalPlan, SetPlan
from fsrun.adapters.settings import SetSource, resolve
from fsrun.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Looked:
    """What was found in the file of a set, beside its plan."""

    rows: int
    size: int
    grader_sha256: str | None = None
    """Of the file of a grader of the user's: another one makes other scores."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan whose every set was looked at."""

    plan: EvalPlan
    looked: tuple[Looked, ...]
    """In the order of the sets."""


def make(sources: Iterable[SetSource], flags: Mapping[str, Any], shared: Mapping[str, Any]) -> Planned:
    """Resolve and look at all sets. ``flags``: settings for each of them; ``shared``: fields of ``EvalPlan``.

    Raises ``UsageError`` for whatever cannot work, with the set's name, its file and the place in it.
    """
    sets: list[SetPlan] = []
    looked: list[Looked] = []
    for plan in resolve(sources, flags):
        digest = _check_grader(plan.grader, plan.name)
        data = datasets.look(plan)
        if plan.grader is None:
            digest = _check_grader(data.grader, plan.name)
        looked.append(Looked(len(data.prompts), data.size, digest))
        sets.append(
            replace(
                plan,
                path=os.path.abspath(plan.path),
                grader=data.grader,
                input_key=data.input_key,
                label_key=data.label_key,
                sha256=data.sha256,
                grader_sha256=digest,
            )
        )
    return Planned(EvalPlan(tuple(sets), **shared), tuple(looked))


def _check_grader(grader: str | None, name: str) -> str | None:
    """The digest of a grader's file; None for those that are built in. Whether it loads is tried where it runs."""
    if grader is None:
        return None
    if ":" not in grader:
        if grader not in NAMES:
            raise UsageError(
                f"eval set {name}: there is no grader {grader!r}; there are {', '.join(NAMES)}, FILE.py:NAME"
            )
        if grader == "math" and importlib.util.find_spec("math_verify") is None:
            raise UsageError(f"eval set {name}: the grader math needs math-verify: pip install 'fsrun[math]'")
        return None
    path, _, function = grader.rpartition(":")
    if not function or not path.endswith(".py"):
        raise UsageError(f"eval set {name}: the grader {grader!r} names no function: write FILE.py:NAME")
    try:
        with open(os.path.expanduser(path), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError as error:
        raise UsageError(f"eval set {name}: the grader's file {path}: {error.strerror or error}") from None


def to_config(planned: Planned) -> dict[str, Any]:
    """The plan as the side job's config records it: what somebody needs to make the same scores again."""
    plan = planned.plan
    sets = []
    for each, looked in zip(plan.sets, planned.looked, strict=True):
        said = {name: value for name, value in asdict(each).items() if value is not None and value != ()}
        said["max_response_len"] = said.pop("max_tokens")
        said.update({name: value for name, value in asdict(looked).items() if value is not None})
        sets.append(said)
    shared = {name: value for name, value in asdict(plan).items() if name != "sets" and value is not None}
    return {"sets": sets, **shared}


def sampling(plan: SetPlan) -> str:
    """How a set's answers are drawn, in a few words."""
    if plan.temperature == 0:
        words = ["greedy"]
    else:
        words = [f"temperature {plan.temperature:g}"]
        words += [f"top_p {plan.top_p:g}"] if plan.top_p < 1 else []
        words += [f"top_k {plan.top_k}"] if plan.top_k > 0 else []
    return ", ".join([*words, f"{plan.max_tokens} tokens"])
