"""The two programs of the seed text, side by side, killed and started again (seeds: "Evaluating while training")."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fsrun
from tests.support.programs import done, environment, jobs, read, until

pytestmark = pytest.mark.multiprocess
HERE = Path(__file__).parent
EPOCHS = 8


@contextmanager
def start(name: str, folder: Path, *arguments: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(HERE / name), *arguments],
        cwd=folder,
        env=environment(folder / "runs", arrow=True, EPOCHS=str(EPOCHS), **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run_of(folder: Path) -> Path:
    return folder / "runs" / "speech" / "big-2026"


def queue_of(folder: Path) -> str:
    return str(run_of(folder) / "queue")


def is_open(folder: Path) -> bool:
    return (run_of(folder) / "jobs" / "main.1.lock").exists()


def evaluated(folder: Path) -> list[int]:
    path = folder / "evaluated"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def points(folder: Path, tag: str) -> list[tuple[int, float]]:
    steps, values = fsrun.open(run_of(folder)).series(tag)
    return list(zip(steps.tolist(), values.tolist(), strict=True))


def check_scalars(folder: Path) -> None:
    assert points(folder, "train/loss") == [(epoch, 1.0 / (epoch + 1)) for epoch in range(EPOCHS)]
    assert points(folder, "eval/pesq") == [(epoch, epoch / 10) for epoch in range(EPOCHS)]
    assert points(folder, "eval/si_sdr") == [(epoch, -float(epoch)) for epoch in range(EPOCHS)]


def test_side_by_side_they_make_one_run(tmp_path: Path) -> None:
    with start("train.py", tmp_path, "--eval-queue", queue_of(tmp_path)) as trainer:
        until(lambda: is_open(tmp_path))
        with start("eval.py", tmp_path) as evaluator:
            for process in (trainer, evaluator):
                code, _, err = done(process)
                assert (code, err) == (0, ""), err
    run = run_of(tmp_path)
    assert sorted(evaluated(tmp_path)) == list(range(EPOCHS))
    check_scalars(tmp_path)
    assert jobs(run) == ["eval.1.end", "eval.1.lock", "eval.json", "main.1.end", "main.1.lock"]
    view = read(run / "run.json")
    assert (view["status"], view["name"], view["config"]) == ("finished", "big", {"lr": 3e-4})
    assert view["summary"] == {"train/loss": 1.0 / EPOCHS}
    assert set(read(run / "jobs" / "eval.json")["summary"]) == {"eval/pesq", "eval/si_sdr"}
    assert (run / "data.parquet").exists()
    assert os.listdir(run / "queue") == ["FINISHED"]
    assert sorted(os.listdir(tmp_path / "ckpt")) == [f"epoch_{epoch:03d}.pt" for epoch in range(EPOCHS)]
    line = json.loads((run / "artifacts" / "eval.1.jsonl").read_text())
    assert (line["name"], line["type"], line["count"]) == ("model", "checkpoint", 1)
    kept = pickle.loads((run / line["path"] / "model.pt").read_bytes())
    assert kept == {"epoch": EPOCHS - 1}


def test_without_a_queue_training_runs_as_before(tmp_path: Path) -> None:
    with start("train.py", tmp_path, PAUSE="0") as trainer:
        code, _, err = done(trainer)
        assert (code, err) == (0, "")
    assert points(tmp_path, "train/loss") == [(epoch, 1.0 / (epoch + 1)) for epoch in range(EPOCHS)]


def test_an_evaluator_without_a_run_says_where_it_looked(tmp_path: Path) -> None:
    with start("eval.py", tmp_path) as evaluator:
        code, _, err = done(evaluator)
    assert code == 1
    assert f"no run 'big-2026' of project 'speech' under {tmp_path}/runs" in err.splitlines()[-1]
    assert not (tmp_path / "runs").exists()


def test_killed_and_started_again_nothing_is_lost_and_nothing_counts_twice(tmp_path: Path) -> None:
    queue = queue_of(tmp_path)
    with start("train.py", tmp_path, "--eval-queue", queue, PAUSE="3") as trainer:
        until(lambda: is_open(tmp_path))
        with start("eval.py", tmp_path) as evaluator:
            until(lambda: len(evaluated(tmp_path)) >= 2)
            evaluator.kill()
            evaluator.wait()
        trainer.kill()
        trainer.wait()
    with start("eval.py", tmp_path) as evaluator:
        with start("train.py", tmp_path, "--eval-queue", queue) as trainer:
            for process in (trainer, evaluator):
                code, _, err = done(process)
                assert code == 0, err
    assert set(evaluated(tmp_path)) == set(range(EPOCHS))
    check_scalars(tmp_path)
    run = run_of(tmp_path)
    for job in ("main", "eval"):
        crashed, finished = (read(run / "jobs" / f"{job}.{n}.end") for n in (1, 2))
        assert (crashed["status"], crashed["reason"]) == ("crashed", "proved dead")
        assert finished["status"] == "finished"


@pytest.mark.parametrize("name", ["train.py", "eval.py"])
def test_the_text_itself_is_not_changed_where_it_matters(name: str) -> None:
    text = (HERE / name).read_text().partition("# --- the text\n")[2]
    for line in LINES[name]:
        assert line in text


LINES = {
    "train.py": [
        'with nb.init("speech", run_name="big", run_id=RUN_ID, config=cfg) as run:',
        '        run.add_scalar({"train/loss": loss}, step=epoch)',
        '        open(f"{args.eval_queue}/FINISHED", "w").close()',
    ],
    "eval.py": [
        'with nb.init("speech", run_id=RUN_ID, job="eval") as run:',
        "        run.add_scalar(scores, step=epoch_of(path))",
        '            os.replace(path, "best/model.pt")',
        '    run.add_artifact("model", "best/", type="checkpoint")',
    ],
}
