"""``fsrun demo --generate``: accuracy rises, and a real fleet says of each snapshot what transformers says of it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import fsrun
from fsrun.cli.demo.sums.model import generate
from fsrun.cli.demo.sums.plan import HELD_OUT, SumsPlan, answer, split
from support import sglang
from tests.support.programs import environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]


@dataclass
class Shown:
    """A demo that has ended."""

    code: int
    out: str
    err: str
    run: Path


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("generate")
    env = environment(folder, arrow=True) | {"FSRUN_ROOT": "", "FSRUN_TIMEOUT": "20", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "fsrun", "demo", "--generate", "--sglang-python", sglang.python()]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=1400)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (folder / "runs" / "sums").iterdir()
    return Shown(done.returncode, done.stdout, done.stderr, run)


def test_everything_it_claims_holds(shown: Shown) -> None:
    checked = shown.out.partition("Checked against the files of the run:\n")[2].partition("\n\n")[0].splitlines()
    assert len(checked) == 11
    assert [line for line in checked if not line.startswith("  ok ")] == []
    assert shown.err == ""


def test_the_accuracy_on_held_out_sums_rises_from_none_to_most(shown: Shown) -> None:
    steps, scores = fsrun.open(shown.run).series("eval/sums")
    assert steps.tolist() == list(SumsPlan().checkpoint_steps)
    assert scores[0] < 0.05
    assert scores[-1] > 0.9


@pytest.mark.parametrize("step", [0, 200, 400, 700])
def test_the_fleet_answers_as_transformers_does_with_the_same_snapshot(shown: Shown, step: int) -> None:
    sums = split()[1]
    rows = fsrun.open(shown.run).samples(step=step).sort_by("row").to_pylist()
    ours = [text.strip() for text in generate(str(shown.run / "best" / f"step_{step}"), sums)]
    assert [row["answer"].strip() for row in rows] == ours
    (outcome,) = (shown.run / "evals").glob(f"step_{step}.*.json")
    right = sum(text == answer(terms) for text, terms in zip(ours, sums, strict=True))
    assert json.loads(outcome.read_text())["scores"]["eval/sums"] == pytest.approx(right / HELD_OUT)


def test_each_snapshot_was_answered_by_its_own_weights(shown: Shown) -> None:
    samples: pa.Table = fsrun.open(shown.run).samples()
    steps = SumsPlan().checkpoint_steps
    assert samples.num_rows == HELD_OUT * len(steps)
    assert len(set(samples["weight_version"].to_pylist())) == len(steps)


def test_it_leaves_no_engine_behind(shown: Shown) -> None:
    import psutil

    left = [
        p.info["cmdline"]
        for p in psutil.process_iter(["cmdline"])
        if str(shown.run) in " ".join(p.info["cmdline"] or [])
    ]
    assert left == []
