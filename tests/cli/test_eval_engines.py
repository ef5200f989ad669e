"""``fsrun eval --engine``: a real evaluator process and a stand-in engine, from flags to points, samples and plan."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import fsrun
from support import standin_fleet
from support.standin import Engine
from support.weights import model_folder
from tests.adapters.test_engines import served
from tests.support import build
from tests.support.programs import PATIENCE, environment, read, until

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(600)]

LONG = 4 * PATIENCE
"""An evaluator on engines imports much, which takes long on a busy machine."""

TOKENIZER = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "what": 1, "is": 2}, "unk_token": "<unk>"},
}


class Stuck(Engine):
    """Generates the one token that is asked for first, and nothing more."""

    async def generate(self, request: web.BaseRequest) -> web.StreamResponse:
        return await (super().generate(request) if self.asked == 1 else self.misbehave("hang", request))


class Case:
    """A run with markers that wait, a set of four sums, a tokenizer."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.run = build.run(root)
        self.run.session("main", 1, config={"lr": 0.25})
        self.run.write("queue/FINISHED", "")
        (root / "tokenizer").mkdir()
        (root / "tokenizer" / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        kind = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"}
        (root / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(kind))
        rows = [{"question": f"what is {40 + i} + 2", "answer": f"#### {42 + i}"} for i in range(4)]
        (root / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def mark(self, step: int) -> None:
        """The trainer holds rollouts at a step."""
        self.run.write(f"queue/step_{step}", json.dumps({"fsrun": "marker", "weight_version": "default"}))

    @contextmanager
    def start(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Start ``fsrun eval``; whatever happens, it is gone afterwards."""
        process = subprocess.Popen(
            [sys.executable, "-m", "fsrun", "eval", *arguments, "--eval-prompt-data", "sums", "sums.jsonl",
             "--eval-tokenizer", "tokenizer"],
            cwd=self.root,
            env=environment(self.root) | {"FSRUN_TIMEOUT": "2", "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def eval(self, *arguments: str) -> tuple[int, str, str]:
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=LONG)
            return process.returncode, out, err

    def outcome(self, name: str) -> Any:
        return read(self.run.path / "evals" / f"{name}.json")


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_points_samples_and_plan_of_markers_come_into_the_run(case: Case) -> None:
    case.mark(10)
    case.mark(20)
    engine = Engine()
    with served(engine):
        code, out, err = case.eval("big", "--engine", engine.url, "--keep-samples", "2", "--time-limit", "5m")
    assert (code, err) == (0, "")
    run = fsrun.open(str(case.run.path))
    scores = {(tag, step): value for tag, step, value in zip(*(
        run.scalars(["eval/sums", "eval/sums/failed"]).column(name).to_pylist() for name in ("tag", "step", "value")
    ), strict=True)}  # fmt: skip
    assert scores == {
        ("eval/sums", 10): 0.25, ("eval/sums", 20): 0.25, ("eval/sums/failed", 10): 0.0, ("eval/sums/failed", 20): 0.0,
    }  # fmt: skip
    samples = run.samples(step=10).to_pylist()
    assert [(row["set"], row["answer"]) for row in samples] == [("sums", "#### 42")] * 2
    config = read(case.run.path / "jobs" / "eval.json")["config"]["eval"]
    assert (config["place"], config["engines"], config["keep_samples"]) == ("engines", [engine.url], 2)
    assert (config["sets"][0]["grader"], config["sets"][0]["rows"]) == ("numeric", 4)
    head = out.splitlines()
    assert head[0] == f"evaluation on the training engines at {engine.url}, 64 requests at a time"
    assert head[2].split()[:4] == ["sums", "4", "1", "numeric"]
    assert any(line.startswith("step_10 (step 10, attempt 1): eval/sums 0.25") for line in head)


def test_a_signal_amid_answers_gives_the_marker_back(case: Case) -> None:
    case.mark(10)
    engine = Stuck()
    with served(engine):
        with case.start("big", "--engine", engine.url) as process:
            until(lambda: engine.asked > 1, LONG)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=LONG)
    assert process.returncode == 128 + signal.SIGTERM
    assert case.outcome("step_10.1")["state"] == "returned"


def test_check_needs_no_run_and_tells_by_its_exit_code(case: Case, tmp_path: Path) -> None:
    engine = Engine()
    with served(engine):
        code, out, _ = case.eval("--check", "--engine", engine.url)
        assert (code, out.splitlines()[-1]) == (0, "this evaluation would work")
        url = engine.url
    code, out, _ = case.eval("--check", "--engine", url)
    assert (code, out.splitlines()[-1]) == (1, "this evaluation would not work: 1 fault")
    assert any("nothing listens there" in line for line in out.splitlines())
    assert sorted(os.listdir(case.run.path / "evals")) == []


def test_engine_settings_that_cannot_work_give_the_checkpoint_back_and_end(case: Case) -> None:
    model_folder(case.run.path / "queue" / "step_10")
    program = standin_fleet.python(case.root)
    code, _, err = case.eval("big", "--eval-num-gpus", "1", "--sglang-python", program, "--eval-sglang-nonsense", "1")
    assert code == 2
    assert "engine-0 refuses its command line: launch_server.py: error: unrecognized arguments: --nonsense" in err
    assert case.outcome("step_10.1")["state"] == "returned"
    assert (case.run.path / "retry" / "2" / "step_10").is_dir()
