"""``fsrun eval`` with a fleet of a real engine, killed: nothing is left of it, and the next goes on with what waits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import fsrun
from support import sglang, toymodel
from support.programs import environment, run_program

pytestmark = [pytest.mark.integration, pytest.mark.timeout(800)]
PATIENCE = 400.0
TRAINER = """
import sys
import fsrun
with fsrun.init("toy", run_id="big") as run:
    for step, folder in enumerate(sys.argv[1:]):
        run.add_scalar({"train/loss": 1.0 / (step + 1)}, step=step)
        run.enqueue(folder, step=step)
    run.finish_queue()
"""


def family(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def named(processes: list[psutil.Process], text: str) -> bool:
    for process in processes:
        try:
            if text in " ".join(process.cmdline()) or text in process.name():
                return True
        except psutil.Error:
            continue
    return False


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_killed_evaluator_leaves_nothing_and_the_next_goes_on_with_what_waits(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    folders = [toymodel.save(tmp_path / f"model-{seed}", seed) for seed in range(2)]
    (tmp_path / "sums.jsonl").write_text(
        "".join(json.dumps({"prompt": f"{n} + {n} =", "label": str(2 * n)}) + "\n" for n in range(10))
    )
    assert run_program(TRAINER, root, *map(str, folders))[0] == 0
    arguments = []
    for at in range(len(sglang.ENGINE) - 1):
        flag, value = sglang.ENGINE[at : at + 2]
        if flag.startswith("--") and not value.startswith("--"):
            arguments += [f"--eval-sglang-{flag[2:]}", value]
    command = [
        *(sys.executable, "-m", "fsrun", "eval", str(root / "toy" / "big"), "--eval-num-gpus", "1"),
        *("--sglang-python", sglang.python(), "--eval-prompt-data", "sums", str(tmp_path / "sums.jsonl")),
        *("--eval-max-response-len", "8", "--once", *arguments),
    ]
    around = environment(root, TMPDIR=str(tmp_path), **sglang.ENVIRONMENT)

    shared = set(os.listdir("/dev/shm"))
    with subprocess.Popen(command, env=around, stdin=subprocess.DEVNULL, cwd=tmp_path) as first:
        try:
            until = time.monotonic() + PATIENCE
            while not named(family(first.pid), "sglang::scheduler"):
                assert first.poll() is None, "it ended by itself"
                assert time.monotonic() < until, "no engine was started"
                time.sleep(0.2)
            left = family(first.pid)
            assert named(left, "launch_router") or named(left, "sglang::router")
        finally:
            first.kill()
    until = time.monotonic() + 60
    while any(alive(process) for process in left):
        assert time.monotonic() < until, [process for process in left if alive(process)]
        time.sleep(0.2)
    while list(tmp_path.glob("fsrun-fleet-*")):
        assert time.monotonic() < until, "its temporary folder stays"
        time.sleep(0.2)
    theirs = {name for name in set(os.listdir("/dev/shm")) - shared if name.startswith(("sglang", "sem.", "psm_"))}
    assert not any(owned_by(name, left) for name in theirs)

    second = subprocess.run(
        command, env=around, stdin=subprocess.DEVNULL, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
    )
    assert second.returncode == 0, second.stderr[-3000:]
    table = fsrun.open(root / "toy" / "big").scalars(["eval/sums"])
    assert sorted(table.column("step").to_pylist()) == [0, 1]
    assert not list(tmp_path.glob("fsrun-fleet-*"))


def owned_by(name: str, processes: list[psutil.Process]) -> bool:
    """Whether a name in shared memory was made while these ran, and nobody has it open any more."""
    try:
        made = os.stat(f"/dev/shm/{name}")
    except FileNotFoundError:
        return False
    if made.st_ctime < min(process.create_time() for process in processes):
        return False
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if f" {made.st_ino} " in (folder / "maps").read_text():
                    return False
            except OSError:
                continue
    return True
