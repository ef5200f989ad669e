"""What each act costs in calls of the file system, as `tools/bench calls` counts them, exactly: none grows unseen.

Fewer are told too, since a count that misses what an act does would hide that it grows.

What these are as requests to an NFS server stands in docs/scale.md (`tools/bench nfs` counts them).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "tools" / "bench"
CALLS = {
    "a beat": 1,
    "a look at all jobs of a run": 1,
    "the view": 3,
    "a flush of the log": 2,
    "a reader's look at two logs of one line and more": 9,
    "`ls`, a root of one run with two live jobs": 15,
    "`ls`, a run whose jobs have ended": 4,
    "a daemon's look through a run's folder": 19,
    "an evaluator's look at an empty queue": 2,
    "its look at the main job": 1,
    "a hand-over of one file": 9,
    "a claim, with the looks around it": 17,
    "an outcome, the move, pruning, and the line": 21,
    "a hand-over of a folder of 100 files": 210,
    "opening a side job": 18,
    "ending it": 13,
}


def test_each_act_costs_as_many_calls_as_is_written_here(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCH), "--quick", "--json", "--folder", str(tmp_path), "calls"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    found = {row["what"]: (row["value"], row["note"]) for row in json.loads(done.stdout)["rows"]}
    assert found.keys() == CALLS.keys()
    assert {what: counted for what, counted in found.items() if counted[0] != CALLS[what]} == {}
