"""What a snapshot takes: one copy of the model, and about a tensor more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.programs import run_program

pytestmark = pytest.mark.multiprocess

CODE = """
import json, sys
import torch
import fsrun


def peak():
    # That of getrusage counts the process that started this one, too.
    (line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]
    return int(line.split()[1]) << 10


state = {f"w{i}": torch.ones(4 << 20) for i in range(8)}  # 16 MB each
with fsrun.init("p", run_id="r") as run:
    assert fsrun.snapshot({"a": torch.ones(1)}, sys.argv[1], 0, limit=9)  # imports what it needs
    run.flush()
    before = peak()
    for step in (1, 2, 3):
        assert fsrun.snapshot(state, sys.argv[1], step, limit=9, shard_size="40MB")
        run.flush()
    print(json.dumps(peak() - before))
"""


def test_a_snapshot_takes_one_copy_of_the_model_and_about_a_tensor_more(tmp_path: Path) -> None:
    code, out, errors = run_program(CODE, tmp_path, str(tmp_path / "hf"))
    assert (code, errors) == (0, "")
    copy, tensor = 8 * (16 << 20), 16 << 20
    assert copy * 0.9 < json.loads(out.splitlines()[-1]) < copy + 2 * tensor
