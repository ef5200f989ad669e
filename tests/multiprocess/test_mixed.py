"""One run, several languages: clients in C, JavaScript and shell beside fsrun's own daemon, evaluator and trainer."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from fsrun.run.reader import RunReader
from support.programs import PATIENCE, until

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools" / "conformance"))

import folder  # noqa: E402
import vectors  # noqa: E402
from driven import Driven  # noqa: E402
from stage import PYTHON, Stage, read  # noqa: E402

pytestmark = [pytest.mark.integration, pytest.mark.multiprocess]
ENTRIES = 12


@pytest.fixture(scope="module")
def c_client(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    binary = tmp_path_factory.mktemp("c") / "fsrun-c"
    source = ROOT / "tools" / "clients" / "fsrun.c"
    subprocess.run(["cc", "-std=c11", "-O2", "-o", str(binary), str(source)], check=True)
    return [str(binary)]


@pytest.fixture
def node_client() -> list[str]:
    if shutil.which("node") is None:
        pytest.skip("no Node")
    return ["node", str(ROOT / "tools" / "clients" / "fsrun.mjs")]


@pytest.fixture
def shell_client() -> list[str]:
    return ["sh", str(ROOT / "tools" / "clients" / "fsrun.sh")]


@pytest.fixture
def python_client() -> list[str]:
    return [sys.executable, str(PYTHON)]


@pytest.fixture
def on_stage(tmp_path: Path) -> Iterator[Callable[[list[str], list[str]], Stage]]:
    """A place for clients of two kinds; what was started is ended."""
    made: list[Stage] = []

    def make(words: list[str], against: list[str]) -> Stage:
        made.append(Stage(tmp_path, words, against, "7"))
        return made[-1]

    yield make
    for stage in made:
        stage.clear()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "runs").mkdir()
    with (tmp_path / "daemon").open("wb") as log:
        words = [sys.executable, "-m", "fsrun", "daemon", str(tmp_path / "runs")]
        process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
    yield process
    process.kill()
    process.wait()


def test_a_trainer_in_c_an_evaluator_in_javascript_and_the_daemon_share_a_run(
    c_client: list[str],
    node_client: list[str],
    python_client: list[str],
    shell_client: list[str],
    daemon: subprocess.Popen[bytes],
    on_stage: Callable[[list[str], list[str]], Stage],
) -> None:
    stage = on_stage(c_client, node_client)
    trainer = stage.opened(timeout=30)
    evaluator = stage.other()
    evaluator.must(["open", "eval", 30], "opened", 1)
    evaluator.must(["best", "max", "acc", 3], "ruled")
    train(stage, trainer, 1)
    stage.take(evaluator)
    stage.kill(trainer)
    stage.kill(evaluator)
    for job in ("main", "eval"):
        # On this host the daemon needs no timeout to be sure.
        until(lambda job=job: folder.job_files(stage.run, job, 1, "end"))
    until(lambda: not [p for where in folder.places(stage.run).values() for p in where if "claimed" in p])

    trainer = stage.opened(session=2)
    train(stage, trainer, ENTRIES // 2 + 1)
    trainer.must(["finish"], "finished")
    trainer.close()
    evaluator = stage.other()
    evaluator.must(["open", "eval", 30], "opened", 2)
    for _ in range(ENTRIES):
        _, _, path = stage.take(evaluator)
        evaluator.must(["outcome", "done", "acc", path.read_text()], "moved", "best")
    stage.over(evaluator)
    evaluator.close()

    # The daemon compacts what all jobs have left.
    until(lambda: "data.parquet" in folder.names(stage.run))
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(PATIENCE) == 0
    stage.settle()
    kept = {(stage.run / "best" / name).read_text() for name in folder.names(stage.run / "best")}
    assert kept == {str(step) for step in range(ENTRIES - 2, ENTRIES + 1)}
    states = [outcome["state"] for outcome in folder.outcomes(stage.run).values()]
    assert (states.count("done"), states.count("lost"), len(states)) == (ENTRIES, 1, ENTRIES + 1)
    readings = [read(words, stage.run, stage.environ) for words in (python_client, c_client, node_client, shell_client)]
    assert readings[0]["points"]["acc"] == [[step, step] for step in range(1, ENTRIES + 1)]
    assert readings[0]["points"]["loss"] == [[step, 1 / step] for step in range(1, ENTRIES + 1)]
    for reading in readings[1:]:
        assert vectors.differences(readings[0], reading) == []
    assert len(RunReader(str(stage.run)).scalars(["acc", "loss"])) == 2 * ENTRIES


def train(stage: Stage, trainer: Driven, first: int) -> None:
    for step in range(first, first + ENTRIES // 2):
        trainer.must(["log", step, step, "loss", 1 / step], "logged")
        stage.enqueue(trainer, stage.file("model.pt", str(step).encode()), "model.pt", step)


def test_shell_and_python_contend_for_a_job_that_has_one_owner_at_any_time_although_owners_are_killed(
    shell_client: list[str], python_client: list[str], on_stage: Callable[[list[str], list[str]], Stage]
) -> None:
    stage = on_stage(shell_client, python_client)
    stage.killed = True
    held: list[tuple[float, float, int]] = []
    mutex = threading.Lock()

    def want(start: Callable[[], Driven], chance: random.Random) -> None:
        done = 0
        limit = time.monotonic() + PATIENCE
        while done < 3:
            assert time.monotonic() < limit, "a job that is free again and again could not be had"
            driven = start()
            answer = driven.ask("open", "main", 12)
            if answer[0] == "held":
                driven.clear()
                continue
            assert answer[0] == "opened", answer
            since, session = time.monotonic(), int(answer[1])
            driven.must(["log", session, session, "a", session], "logged")
            time.sleep(0.1)
            with mutex:
                held.append((since, time.monotonic(), session))
            if chance.random() < 0.5:
                driven.kill()
            else:
                driven.close()
            done += 1

    starts = [stage.client, stage.other, stage.client, stage.other]
    with ThreadPoolExecutor(len(starts)) as pool:
        for future in [pool.submit(want, start, random.Random(seed)) for seed, start in enumerate(starts)]:
            future.result()
    held.sort()
    assert [session for _, _, session in held] == list(range(1, 3 * len(starts) + 1))
    for (_, ended, _), (began, _, _) in pairwise(held):
        assert ended <= began, held
    stage.settle()
    points = read(shell_client, stage.run, stage.environ)["points"]["a"]
    assert points == [[session, session] for _, _, session in held]
