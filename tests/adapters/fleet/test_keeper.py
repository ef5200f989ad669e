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
from types import SimpleNamespace

import psutil
import pytest

from fsrun.adapters.fleet import keeper, trees
from fsrun.adapters.fleet.keeper import Keeper
from fsrun.adapters.fleet.processes import remove_old
from fsrun.adapters.fleet.trees import Tree, started

PATIENCE = 60.0
ENGINE = """
import os, signal, sys
if os.fork() == 0:
    # A process of its own session that holds shared memory, as schedulers and their workers do.
    os.setsid()
    from multiprocessing import resource_tracker, shared_memory
    piece = shared_memory.SharedMemory(create=True, size=4096, name=f"sglang_standin_{os.getpid()}")
    resource_tracker.unregister(piece._name, "shared_memory")
    print(f"child {os.getpid()} {piece.name}", flush=True)
signal.pause()
"""
EVALUATOR = """
import asyncio, json, sys
from fsrun.adapters.fleet.processes import Processes
engine, ends = sys.argv[1:]
processes = Processes()
async def start():
    for name, program in (("router", "import signal; signal.pause()"), ("engine-0", engine), ("engine-1", engine)):
        await processes.start(name, [sys.executable, "-c", program], {})
asyncio.run(start())
print(json.dumps({"running": processes.running, "folder": processes.folder}), flush=True)
if ends == "close":
    processes.close()
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
def evaluator() -> Iterator[Callable[[str], tuple[subprocess.Popen[str], dict[str, object]]]]:
    made: list[subprocess.Popen[str]] = []

    def start(ends: str) -> tuple[subprocess.Popen[str], dict[str, object]]:
        process = subprocess.Popen(
            [sys.executable, "-c", EVALUATOR, ENGINE, ends],
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
    process, told = evaluator("wait")
    folder = str(told["folder"])
    until(lambda: len(shared_of(folder)) == 2, "engines have children")
    family = descendants(process.pid)
    # Keeper, router, two engines, and their two children, which left the engines' sessions.
    until(lambda: len(descendants(process.pid)) >= 6, "all are there")
    family = descendants(process.pid)
    shared = shared_of(folder)
    assert all(os.path.exists(f"/dev/shm/{name}") for name in shared)
    # The keeper looks at them every 2 s; what it never saw in its parent's life it may not know.
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
    until(lambda: len(descendants(process.pid)) >= 6, "all are there")
    family = descendants(process.pid)
    keeper.kill()
    until(lambda: not any(psutil.pid_exists(pid) for pid in running.values()), "engines and router are gone")
    # Those of sessions of their own look after themselves, as SGLang's schedulers do; these here do not.
    for child in family:
        if not gone(child):
            child.kill()


ORPHANS = """
import ctypes, os, signal
from fsrun.adapters.fleet.keeper import Keeper
from fsrun.adapters.fleet.trees import processes
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
ready, go = os.pipe()
for _ in range(2):
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setsid()
                os.write(go, b"x")
                signal.pause()
            signal.pause()
        os._exit(0)
def here():
    return sum(row.parent == os.getpid() and row.state not in "ZX" for row in processes().values())
os.read(ready, 1), os.read(ready, 1)
while here() != 2:
    pass
keeper = Keeper.__new__(Keeper)
keeper.kept, keeper._look_at = {}, 0.0
keeper._sweep()
print(here())
"""


def test_what_came_to_the_keeper_unseen_is_ended_with_all_it_started() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ORPHANS], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


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


def test_what_a_process_maps_is_read_ever_more_seldom_and_once_more_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    monkeypatch.setattr(trees, "mapped", lambda pid: read.append(pid) or set())
    tree = Tree(os.getsid(0))
    table = {1001: trees.Row("S", 1, tree.leader, 5)}
    for _ in range(64):
        tree.look(table)
    assert len(read) == 7, "at the looks 1, 2, 4, 8, 16, 32 and 64"
    tree.look(table, closely=True)
    assert len(read) == 8


def test_one_look_reads_the_processes_once_for_all_trees_and_rests_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 103.0])
    tables: list[object] = []
    monkeypatch.setattr(keeper, "processes", lambda: tables.append({}) or tables[-1])
    monkeypatch.setattr(keeper.time, "monotonic", lambda: next(clock))
    one = Keeper.__new__(Keeper)
    seen: list[object] = []
    monkeypatch.setattr(Keeper, "_advance", lambda self, kept, table: seen.append(table))
    one.kept = {name: SimpleNamespace(kill_at=None) for name in "abc"}  # type: ignore[misc]
    one._look()
    assert len(tables) == 1
    assert [table is tables[0] for table in seen] == [True] * 3
    assert one._rest_until == 133.0, "a look of 3 s is followed by 30 s without one"


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
