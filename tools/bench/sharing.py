"""Rows about what two processes share: how soon a point is seen."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import time
from typing import Any

from rows import Row, Settings, child, child_command, turns

EVERY = 0.29
LONGEST = 8.0


def visibility(settings: Settings) -> list[Row]:
    """From the call to a read of another process that has the point, each tool with its own defaults."""
    count = 8 if settings.quick else 12

    def work(tool: str, turn: int) -> dict[str, Any]:
        folder = settings.folder / f"visibility-{tool}"
        folder.mkdir()
        try:
            return child("sharing", "observe", folder, tool, count, python=settings.tools[tool])
        finally:
            shutil.rmtree(folder)

    found = turns(settings, work)
    note = f"a point every {EVERY * 1000:.0f} ms, local disk; after {LONGEST:.0f} s it counts as seen"
    return [
        found.row("visibility", "a point seen by another process, median", "median", "s", note=note),
        found.row("visibility", "a point seen by another process, latest", "latest", "s", 1.0, note=f"of {count}"),
    ]


# What follows runs in a child.


def train(folder: str, tool: str, count: int) -> dict[str, float]:
    """Log a point now and then, say when, and go on as a training would."""
    from peers import TAG, open_tool

    log, _ = open_tool(tool, folder)
    for step in range(count):
        print(step, time.time(), flush=True)
        log({TAG: 0.5}, step)
        time.sleep(EVERY)
    time.sleep(LONGEST)
    return {}


def observe(folder: str, tool: str, count: int) -> dict[str, float]:
    """Seconds from each call until a read has as many points."""
    from peers import CannotError, read_tool

    command = child_command("sharing", "train", folder, tool, count)
    seen: list[float] = []
    called: list[float] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as trainer:
        try:
            assert trainer.stdout is not None
            while len(called) < count:
                line = trainer.stdout.readline().split()
                if not line and trainer.poll() is not None:
                    raise RuntimeError(f"{tool} failed to log")
                if len(line) == 2 and line[0].isdigit():
                    called.append(float(line[1]))
                    break  # the rest is read once all was seen, so that nothing here waits for it
            while len(seen) < count and time.time() < called[0] + count * EVERY + LONGEST:
                try:
                    points = read_tool(tool, folder)
                except CannotError:
                    raise
                except Exception:  # it is not there yet
                    points = 0
                seen += [time.time()] * (points - len(seen))
                time.sleep(0.005)
            while len(called) < count and len(line := trainer.stdout.readline().split()) == 2:
                called.append(float(line[1]))
        finally:
            trainer.kill()
    delays = [min(LONGEST, seen[i] - called[i]) if i < len(seen) else LONGEST for i in range(count)]
    return {"median": statistics.median(delays), "latest": max(delays)}
