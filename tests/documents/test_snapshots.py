"""docs/snapshots.md: its example runs, and names what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from fsrun.adapters.snapshots.exporter import SKIPPED, STALL
from fsrun.adapters.weights import MANIFEST, verify

pytestmark = pytest.mark.documents
TEXT = (Path(__file__).parents[2] / "docs" / "snapshots.md").read_text()


def test_the_example_runs_and_its_last_snapshot_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSRUN_ROOT", str(tmp_path / "runs"))
    monkeypatch.setenv("FSRUN_CAPTURE", "0")
    monkeypatch.setenv("FSRUN_COMPACT", "0")
    (tmp_path / "tokenizer.json").write_text("{}")
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    code = code.replace("/dev/shm", str(tmp_path))
    names = {"n": 60, "model": torch.nn.Linear(2, 2), "tokenizer": str(tmp_path), "train_step": lambda: None}
    exec(compile(code, "docs/snapshots.md", "exec"), names)
    queue = tmp_path / "fsrun" / "math" / "big" / "queue"
    assert sorted(path.name for path in queue.iterdir()) == ["FINISHED", "step_50", "step_60"]
    (queue / "step_60" / "config.json").write_text("{}")
    assert {tensor.dtype for tensor in verify(str(queue / "step_60")).tensors.values()} == {"BF16"}


@pytest.mark.parametrize("name", [SKIPPED, STALL, MANIFEST, "limit=2", "wait=60"])
def test_names_are_those_of_the_code(name: str) -> None:
    assert name in TEXT
