"""A trainer that is killed amid a snapshot: at most that one is lost, and what it left is gone with the next."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.support.programs import done, program, read, ready, run_program

pytestmark = pytest.mark.multiprocess

CODE = """
import sys, threading
import torch
import fsrun
from fsrun.adapters.snapshots.folder import SessionFolder

write = SessionFolder._write_file


def hangs(self, path, data, moved):
    size = write(self, path, data, moved)
    if sys.argv[2] == "hang" and "step_2" in path:
        print("ready", flush=True)
        threading.Event().wait()
    return size


SessionFolder._write_file = hangs
with fsrun.init("p", run_id="r") as run:
    for step in (1, 2):
        assert fsrun.snapshot({"w": torch.full((1000,), float(step))}, sys.argv[1], step, limit=9)
        if step == 1:
            assert run.flush(60)
    if sys.argv[2] == "hang":
        threading.Event().wait()
"""


def entries(tmp_path: Path) -> dict[str, float]:
    queue = tmp_path / "p" / "r" / "queue"
    return {path.name: float(load_file(path / "model.safetensors")["w"][0]) for path in queue.iterdir()}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_trainer_that_is_killed_loses_the_snapshot_in_hand_alone(tmp_path: Path, how: signal.Signals) -> None:
    hf = tmp_path / "hf"
    with program(CODE, tmp_path, str(hf), "hang") as trainer:
        ready(trainer)
        trainer.send_signal(how)
        assert done(trainer)[0] == -how
    assert entries(tmp_path) == {"step_1": 1.0}
    (left,) = os.listdir(hf)
    assert sorted(os.listdir(hf / left)) == [".part-step_2", "owner.json"]
    if how is signal.SIGTERM:
        end = read(tmp_path / "p" / "r" / "jobs" / "main.1.end")
        assert (end["status"], end["reason"]) == ("failed", "terminated")

    code, _, errors = run_program(CODE, tmp_path, str(hf), "go on")
    assert (code, errors) == (0, "")
    assert entries(tmp_path) == {"step_1": 1.0, "step_1~2": 1.0, "step_2": 2.0}
    assert os.listdir(hf) == []
