"""What is left of a fleet: nothing, however its evaluator ends."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from fsrun.adapters.fleet.processes import remove_old
from fsrun.adapters.fleet.trees import Tree, started
from support import standin_fleet

PATIENCE = 60.0
EVALUATOR = """
import sys, json
from fsrun.adapters.evaluation import Request
from fsrun.adapters.fleet import FleetSettings
from fsrun.adapters.fleet.evaluator import FleetEvaluator
from fsrun.adapters.plan import EvalPlan, SetPlan
python, data, folder, ends = sys.argv[1:]
plan = EvalPlan((SetPlan("sums", data, "exact", max_tokens=8),), concurrency=4)
more = ("--child", "1") if ends == "family" else ()
fleet = FleetEvaluator(plan, FleetSettings(2, sglang_python=python, sglang_args=more, grace=2.0))
fleet.evaluate(Request(folder, "e0", 1, 1, "/runs/toy"))
print(json.dumps({"running": fleet.processes.running, "folder": fleet.processes.folder}), flush=True)
if ends == "close":
    fleet.close()
elif ends == "raise":
    raise SystemExit(3)
else:
    sys.stdin.read()
"""


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def descendants(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def shared_of(folder: str) -> list[str]:
    """Names of shared memory that the engines said they made."""
    names = []
    for log in Path(folder).glob("engine-*.log"):
        names += [line.split()[2] for line in log.read_text().splitlines() if line.startswith("child ")]
    return names


@pytest.fixture
def evaluator(
    tmp_path: Path, snapshot: Callable[..., Path], plan: object
) -> Iterator[Callable[[str], tuple[subprocess.Popen[str], dict[str, object]]]]:
    made: list[subprocess.Popen[str]] = []

    def start(ends: str) -> tuple[subprocess.Popen[str], dict[str, object]]:
        arguments = [standin_fleet.python(tmp_path), str(tmp_path / "sums.jsonl"), str(snapshot("a", "7")), ends]
        process = subprocess.Popen(
            [sys.executable, "-c", EVALUATOR, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        made.append(process)
        assert process.stdout is not None
        return process, json.loads(process.stdout.readline())

    yield start
    for process in made:
        process.kill()
        process.communicate(timeout=PATIENCE)


def test_an_evaluator_that_is_killed_leaves_no_process_no_file_and_no_shared_memory(
    evaluator: Callable[[str], tuple[subprocess.Popen[str], dict[str, object]]],
) -> None:
    process, told = evaluator("family")
    folder = str(told["folder"])
    until(lambda: len(shared_of(folder)) == 2, "engines have children")
    family = descendants(process.pid)
    # Keeper, router, two engines, and their two children, which left the engines' sessions.
    until(lambda: len(descendants(process.pid)) >= 6, "all are there")
    family = descendants(process.pid)
    shared = shared_of(folder)
    assert all(os.path.exists(f"/dev/shm/{name}") for name in shared)
    # The keeper looks at them every 2 s; what it never saw in its parent's life it may not know.
    until(lambda: all(child.cpu_times() for child in family), "they run")
    process.kill()
    process.wait(PATIENCE)
    until(lambda: all(gone(child) for child in family), "nothing runs any more")
    until(lambda: not os.path.exists(folder), "its folder is removed")
    assert not [name for name in shared if os.path.exists(f"/dev/shm/{name}")]


@pytest.mark.parametrize("ends", ["close", "raise"])
def test_an_evaluator_that_ends_leaves_nothing(
    evaluator: Callable[[str], tuple[subprocess.Popen[str], dict[str, object]]], ends: str
) -> None:
    process, told = evaluator(ends)
    process.wait(PATIENCE)
    running = told["running"]
    assert isinstance(running, dict)
    until(lambda: not any(psutil.pid_exists(pid) for pid in running.values()), "engines and router are gone")
    until(lambda: not os.path.exists(str(told["folder"])), "its folder is removed")


def test_a_keeper_that_is_killed_takes_its_engines_with_it(
    evaluator: Callable[[str], tuple[subprocess.Popen[str], dict[str, object]]],
) -> None:
    process, told = evaluator("wait")
    keeper = psutil.Process(process.pid).children()[0]
    running = told["running"]
    assert isinstance(running, dict)
    keeper.kill()
    until(lambda: not any(psutil.pid_exists(pid) for pid in running.values()), "engines and router are gone")


def test_logs_of_a_dead_fleet_go_after_a_day_those_of_a_living_one_stay(tmp_path: Path) -> None:
    long_ago = time.time() - 2 * 24 * 3600
    folders = {name: tmp_path / f"fsrun-fleet-{name}" for name in ("dead", "living", "recent")}
    for name, folder in folders.items():
        folder.mkdir()
        log = folder / "keeper.log"
        log.touch()
        if name != "recent":
            os.utime(log, (long_ago, long_ago))
    with open(folders["living"] / "keeper.log", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        remove_old(str(tmp_path))
    assert {name for name, folder in folders.items() if folder.exists()} == {"living", "recent"}


def test_a_number_that_was_given_to_another_process_is_not_taken_for_the_tree() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as other:
        tree = Tree(other.pid)
        tree.start = (started(other.pid) or 0) - 1  # as if the leader had started before
        try:
            assert tree.look() == {}
            tree.signal(signal.SIGKILL)
            assert other.poll() is None
        finally:
            other.kill()
