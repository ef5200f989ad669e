"""A process that logs is killed: what it had logged before is there, in order, in whole lines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.lines import read_lines

pytestmark = pytest.mark.multiprocess

PROGRAM = """
import sys, time
from fsrun.disk.clock import SystemClock
from fsrun.disk.fs import LocalFileSystem
from fsrun.run.writer import ScalarWriter
writer = ScalarWriter(LocalFileSystem(), SystemClock(), sys.argv[1], "main", 1, token="a" * 16, warn=print)
step = 0
while True:
    for _ in range(int(sys.argv[2])):
        writer.add({"a": 1.0}, step)
        step += 1
    print(step, time.monotonic(), flush=True)
    time.sleep(0.02)
"""
ALLOWED = 5.0
"""A second is promised; the rest is for a machine that does other things."""


@pytest.mark.parametrize("burst", [1, 20_000])
def test_a_killed_process_loses_its_last_moment_and_no_line_before_it(tmp_path: Path, burst: int) -> None:
    (tmp_path / "scalars").mkdir()
    log = tmp_path / "scalars" / "main.1.jsonl"
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(burst)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            end = time.monotonic() + 60
            while not (log.exists() and log.stat().st_size > 10 * burst) and time.monotonic() < end:
                time.sleep(0.02)
            time.sleep(1.0)
        finally:
            os.kill(child.pid, signal.SIGKILL)
            killed = time.monotonic()
        assert child.stdout is not None
        said = [line.split() for line in child.stdout if line.count(" ") == 1 and line.endswith("\n")]
    data = log.read_bytes()
    steps = [point.step for point in read_lines(data)]
    due = max((int(step) for step, when in said if float(when) < killed - ALLOWED), default=0)
    assert steps == list(range(len(steps)))
    assert len(steps) >= max(due, 1)
    assert int(said[-1][0]) >= len(steps) - burst, "no line that was not logged"
