"""The exclusion trial: several processes open and close sessions of one job in a temporary run, as fast as they can.

Does: starts them, collects when each was protected. Leaves to others: what they do (``doctor_peer``), whether that was
exclusion (``core.fitness``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from fsrun.core.fitness import Hold, Trial
from fsrun.run.doctor_sights import Peer


def hold(peer: Callable[..., Peer], runs: Sequence[str], timeout: float, seconds: float) -> Trial:
    """Have one process a run folder (all are the same one, perhaps through several mounts) compete for ``seconds``."""
    peers = [
        peer("hold", json.dumps({"run": run, "who": f"process {number}", "timeout": timeout, "seconds": seconds}))
        for number, run in enumerate(runs, 1)
    ]
    holds, problems = [], []
    for one in peers:
        with one:
            for said in one.lines():
                if "problem" in said:
                    problems.append(str(said["problem"]))
                else:
                    holds.append(Hold(said["session"], said["who"], said["first"], said["last"]))
    return Trial(tuple(sorted(holds, key=lambda hold: hold.session)), tuple(problems))
