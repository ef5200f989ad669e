"""What the demo sees of its two processes: the files of the run, and nothing else."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from fsrun.core.ids import MAIN
from fsrun.core.queue import Claim
from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.store import Store
from fsrun.run.inspect import read_evals
from fsrun.run.listing import last_logged_step
from fsrun.run.places import claims


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at the run folder."""

    step: int
    """The last step in the trainer's log; 0 before the first."""
    done: list[dict[str, Any]]
    """Outcomes ``done``, in the order in which they were put."""
    held: Claim | None
    """What an evaluator holds without an outcome: it is being evaluated, or its evaluator died."""


def look(path: str) -> Seen:
    """Look at a run, which may not be there yet."""
    fs = LocalFileSystem()
    if not os.path.isdir(path):
        return Seen(0, [], None)
    # Claims first: an outcome is durable before its claim goes, so a claim that has none below had none then.
    standing = claims(Store(fs, path, MAIN, 0))
    outcomes = read_evals(fs, path)
    settled = {(outcome["entry"], outcome["attempt"]) for outcome in outcomes}
    held = [claim for claim in standing if (claim.entry, claim.attempt) not in settled]
    return Seen(
        step=last_logged_step(fs, path, MAIN, 1) or 0,
        done=[outcome for outcome in outcomes if outcome["state"] == "done"],
        held=held[0] if held else None,
    )
