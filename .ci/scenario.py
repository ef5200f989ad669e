"""A run as a user of the wheel would write it, read back through the command line: ``scenario.py ROOT FSRUN``."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsrun

STEPS = 100


def main(root: str, command: str) -> None:
    assert "site-packages" in fsrun.__file__, f"not the installed wheel: {fsrun.__file__}"
    checkpoint = Path("checkpoint_99.txt")
    checkpoint.write_text("weights")
    with fsrun.init("ci", run_id="wheel", root=root, config={"lr": 0.1}) as run:
        for step in range(STEPS):
            run.add_scalar({"train/loss": 1 / (step + 1)}, step=step)
        run.enqueue(checkpoint, step=STEPS - 1)
        run.finish_queue()
    with fsrun.init("ci", run_id="wheel", root=root, job="eval") as run:
        for entry in run.entries(best="max:eval/acc", keep=1):
            with entry:
                entry.done({"eval/acc": float(len(Path(entry.path).read_text()))})

    def ask(*arguments: str) -> Any:
        return json.loads(subprocess.run([command, *arguments], check=True, capture_output=True, timeout=60).stdout)

    listed = ask("ls", root, "--json")
    assert [run["id"] for run in listed] == ["wheel"], listed
    shown = ask("show", str(Path(root, "ci", "wheel")), "--json")
    assert shown["run"]["status"] == "finished", shown["run"]
    assert {job["job"] for job in shown["jobs"]} == {"main", "eval"}, shown["jobs"]
    queue = {"waiting": 0, "claimed": 0, "failed": 0, "finished": True}
    assert {key: shown["queue"][key] for key in queue} == queue, shown["queue"]
    assert (shown["best"]["step"], shown["best"]["score"]) == (STEPS - 1, 7.0), shown["best"]
    assert [outcome["state"] for outcome in shown["evals"]] == ["done"], shown["evals"]
    assert len(fsrun.open(Path(root, "ci", "wheel")).scalars(["train/loss"])) == STEPS
    print(f"{STEPS} points, one checkpoint evaluated, all of it read back")


main(*sys.argv[1:])
