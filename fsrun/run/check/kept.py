"""Checks of the samples of evaluations against the outcomes that name them (protocol.md 5.3, 6.16)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial

from fsrun.core import layout
from fsrun.core.records import Outcome
from fsrun.run.check.finding import Fix, Picture
from fsrun.run.check.repair import remove_samples

Outcomes = Mapping[str, Mapping[int, Outcome]]


def check_samples(picture: Picture, names: list[str], outcomes: Outcomes, attempts: Mapping[str, set[int]]) -> None:
    """Check every file of samples in a listing of ``evals/``, and every outcome that names one."""
    there = {key: name for name in names if (key := layout.parse_samples_name(name))}
    for (entry, attempt), name in sorted(there.items()):
        outcome = outcomes.get(entry, {}).get(attempt)
        if outcome is not None and outcome.samples is not None:
            _compare(picture, f"{layout.EVALS}/{name}", outcome.samples)
        elif outcome is not None:
            message = f"is named by no outcome: attempt {attempt} ended as {outcome.state} without samples"
            fix = Fix(4, "remove it", partial(remove_samples, picture, entry, attempt))
            picture.report("warning", f"{layout.EVALS}/{name}", "5.3", message, "fsrun check --fix", fix=fix)
        elif attempt not in attempts.get(entry, set()) and picture.all_closed():
            message = f"is named by no outcome: attempt {attempt} has none"
            picture.report("note", f"{layout.EVALS}/{name}", "5.3", message, "bring its claim home, or remove it")
    for entry, mine in sorted(outcomes.items()):
        for attempt, outcome in sorted(mine.items()):
            if outcome.samples is not None and (entry, attempt) not in there:
                file = f"{layout.EVALS}/{layout.samples_name(entry, attempt)}"
                message = "is gone, though the outcome names it; the scores count all the same"
                picture.report("note", file, "5.3", message, "nothing, if somebody removed it to save space")


def _compare(picture: Picture, file: str, named: Mapping[str, object]) -> None:
    """Whether a file is what the outcome names: no reader takes another for it."""
    blame = "it was changed or mixed up: restore it from a copy, or remove it"
    try:
        there = picture.fs.stat(picture.store.path(file)).size
        data = picture.fs.read(picture.store.path(file)) if there == named.get("size") else b""
    except FileNotFoundError:
        return
    except OSError as error:
        picture.report("error", file, "5.3", f"cannot be read: {error.strerror}", "make it readable")
        return
    if there != named.get("size"):
        message = f"has {there} bytes, the outcome says {named.get('size')!r:.40}; no reader takes it for the samples"
        picture.report("error", file, "5.3", message, blame)
    elif named.get("sha256") not in (None, hashlib.sha256(data).hexdigest()):
        message = "has another digest than the outcome says; no reader takes it for the samples"
        picture.report("error", file, "5.3", message, blame)
