"""The ten lines of docs/evaluate.md, run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fsrun
from tests.support.programs import environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TEXT = (Path(__file__).parents[2] / "docs" / "evaluate.md").read_text()
CODE = re.findall(r"^Plain torch:\n\n```python\n(.*?)```", TEXT, re.M | re.S)[0]

EVALUATE = """
import torch

def evaluate(path):
    model = torch.nn.Linear(8, 1)
    model.load_state_dict(torch.load(path))
    x = torch.eye(8)
    with torch.no_grad():
        return {"loss": (model(x) - x.sum(1, keepdim=True)).square().mean()}
"""


def run(folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr


def test_they_train_and_hand_over_what_another_process_evaluates(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CODE)
    (tmp_path / "my_eval.py").write_text(EVALUATE)
    run(tmp_path, "train.py")
    (name,) = os.listdir(tmp_path / "plain")
    run(tmp_path, "-m", "fsrun", "eval", name, "--function", "my_eval.py:evaluate")
    reader = fsrun.open(tmp_path / "plain" / name)
    assert reader.series("train/loss")[0].tolist() == list(range(1, 101))
    steps, losses = reader.series("eval/loss")
    assert steps.tolist() == [20, 40, 60, 80, 100]
    assert losses[-1] < losses[0]
