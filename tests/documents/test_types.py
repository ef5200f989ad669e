"""What a type checker says of a program that uses fsrun, with steps as training loops have them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import numpy as np
import fsrun

with fsrun.init("speech", run_id="big") as run:
    step = np.int64(3)
    run.add_scalar({"train/loss": 0.5}, step=step)
    run.add_scalar({"train/loss": 0.5}, step)
    run.add_scalar("train/loss", 0.5, step)
    run.add_text("note", "text", step)
    run.enqueue("model.pt", step=step)
    run.entries().close()
    with run.entries(best="max:eval/acc") as entries:
        for entry in entries:
            entry.done({"eval/acc": 1.0})
    path: str = run.path
    run.add_scalar({"train/loss": 0.5}, step="three")  # the one mistake
"""


def test_a_strict_type_checker_takes_what_works_and_refuses_what_does_not(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--follow-imports", "silent"]
    command += ["--ignore-missing-imports", "--cache-dir", str(ROOT / ".mypy_cache" / "programs"), str(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    wrong = PROGRAM.splitlines().index('    run.add_scalar({"train/loss": 0.5}, step="three")  # the one mistake') + 1
    assert len(errors) == 1, done.stdout
    assert f"train.py:{wrong}: error:" in errors[0]
