"""Rows about reading: 10^6 and 10^7 points live and compacted; one tag of many; the tail; many runs' last values."""

from __future__ import annotations

import atexit
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from rows import Row, Settings, child, medians, timed, turns

TAGS = 100
NEW = 1_000


def measure(settings: Settings) -> list[Row]:
    rows = [*_size(settings, 1_000_000, (None, 0.1, 0.03)), *_size(settings, 10_000_000, (None, None, None))]
    return [*rows, *_one_of_many(settings), *_beside_peers(settings), *_last_values(settings)]


def _size(settings: Settings, full: int, goals: tuple[float | None, ...]) -> list[Row]:
    count = settings.points(full)
    folder = settings.folder / "reading"
    try:
        made = child("reading", "make", folder, count)
        results = [_reads(settings, folder)]
        child("reading", "compact", folder)
        results.append(_reads(settings, folder))
        child("reading", "finish", folder)
        results.append(_reads(settings, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    states = ("a live run, no cache", "a live run with a data.parquet as its cache", "a compacted run")
    rows = [
        Row("reading", f"{count:,} points of {state}", found["seconds"], "s", goal)
        for state, found, goal in zip(states, results, goals, strict=True)
    ]
    if full == 1_000_000:
        size = results[-1]["parquet_bytes"] / count
        rows.append(Row("reading", "a point of a smooth series, compacted", size, "bytes", 9.0))
        rows.append(Row("reading", "a point in the log", made["log_bytes"] / count, "bytes"))
    return rows


def _reads(settings: Settings, folder: Path) -> dict[str, float]:
    return medians([child("reading", "read", folder) for _ in range(settings.rounds)])


def _one_of_many(settings: Settings) -> list[Row]:
    steps = settings.points(1_000_000) // TAGS
    folder = settings.folder / "reading"
    try:
        child("reading", "make", folder, steps, TAGS)
        live = _reads(settings, folder)
        child("reading", "finish", folder)
        compacted = _reads(settings, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    what = f"one tag of {TAGS}, of {steps * TAGS:,} points of"
    return [
        Row("reading", f"{what} a live run, no cache", live["one_tag"], "s"),
        Row("reading", f"{what} a compacted run", compacted["one_tag"], "s"),
    ]


def _beside_peers(settings: Settings) -> list[Row]:
    """What peers can do in the time: a tenth of the points, the same number for each."""
    count = settings.points(100_000)
    folders = {tool: settings.folder / f"reading-{tool}" for tool in settings.tools}
    written: dict[str, str] = {}

    def work(tool: str, turn: int) -> dict[str, Any]:
        python, folder = settings.tools[tool], folders[tool]
        if tool not in written:
            child("reading", "write", folder, tool, count // 10, python=python)
            written[tool] = python
        return child("reading", "read_one", folder, tool, count // 10, python=python)

    def tail(tool: str, turn: int) -> dict[str, Any]:
        folder = settings.folder / f"reading-tail-{tool}-{turn}"
        try:
            return child("reading", "tail", folder, tool, count, python=settings.tools[tool])
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    try:
        found = turns(settings, work)
    finally:
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)
    tailed = turns(settings, tail)
    what = f"one tag of 10, of {count:,} points of a live run, no cache"
    return [
        found.row("reading", what, "again", "s", note="in a process that has read before"),
        found.row("reading", "the same in a fresh process, all that it imports included", "first", "s"),
        tailed.row(
            "reading",
            f"{NEW:,} new points behind {count:,} of a live run",
            "seconds",
            "s",
            note="who cannot go on from where it was reads all of it; of TensorBoard 950 are enough",
        ),
    ]


def _last_values(settings: Settings) -> list[Row]:
    runs = 100 if settings.quick else 1_000
    made: dict[str, Path] = {}

    def work(tool: str, turn: int) -> dict[str, Any]:
        folder = settings.folder / f"last-{tool}"
        if tool not in made:
            child("many", "make", folder, tool, runs, python=settings.tools[tool])
            made[tool] = folder
        return child("many", "last_values", folder, tool, runs, python=settings.tools[tool])

    try:
        found = turns(settings, work)
        command = [sys.executable, "-m", "fsrun", "ls", "--json", str(made["fsrun"])]
        listed = [
            timed(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(settings.rounds)
        ]
    finally:
        for folder in made.values():
            shutil.rmtree(folder, ignore_errors=True)
    what = f"last values of ten tags of {runs:,} runs"
    return [
        found.row("reading", f"{what}, each run opened", "seconds", "s", note="100 points a run"),
        Row("reading", f"{what}, by `fsrun ls --json`", median(listed), "s", note="Python start included"),
    ]


# What follows runs in a child.


def make(folder: str, count: int, tags: int = 1) -> dict[str, float]:
    """A run whose main job dies without an end, so that it counts as live: ``count`` steps of smooth series."""
    import fsrun

    run = fsrun.init("bench", run_id="live", root=folder)
    names = ["train/loss", *(f"train/k{i}" for i in range(1, tags))]
    for step in range(count):
        value = math.exp(-step / count)
        run.add_scalar(dict.fromkeys(names, value), step)
    run.flush(600)
    # Registered last, so it runs first: nothing ends the run, as after SIGKILL.
    atexit.register(os._exit, 0)
    return {"log_bytes": Path(run.path, "scalars", "main.1.jsonl").stat().st_size}


def read(folder: str) -> dict[str, Any]:
    """Seconds from opening to columns in memory, the best of three: the first one also loads pyarrow."""
    import fsrun

    path = str(Path(folder, "bench", "live"))
    data = Path(path, "data.parquet")
    return {
        "seconds": min(timed(lambda: fsrun.open(path).scalars()) for _ in range(3)),
        "one_tag": min(timed(lambda: fsrun.open(path).scalars("train/loss")) for _ in range(3)),
        "parquet_bytes": data.stat().st_size if data.exists() else 0,
    }


def compact(folder: str) -> dict[str, str]:
    """What `fsrun compact` does."""
    from fsrun.run.compact import compact as build

    return {"path": str(build(str(Path(folder, "bench", "live"))))}


def finish(folder: str) -> dict[str, float]:
    """The run goes on and ends, which compacts it."""
    import fsrun

    run = fsrun.init("bench", run_id="live", root=folder)
    seconds = timed(run.finish)
    if not Path(run.path, "data.parquet").exists():
        raise RuntimeError("no data.parquet")
    return {"seconds": seconds}


def write(folder: str, tool: str, count: int) -> dict[str, int]:
    """Ten tags, ``count`` points each; of fsrun's the run stays open."""
    from peers import TAG, open_tool

    log, end = open_tool(tool, folder)
    names = [TAG, *(f"train/k{i}" for i in range(1, 10))]
    for step in range(count):
        log(dict.fromkeys(names, step * 0.001), step)
    end()
    if tool == "fsrun":
        atexit.register(os._exit, 0)
    return {}


def read_one(folder: str, tool: str, count: int) -> dict[str, float]:
    from peers import read_tool

    def once() -> None:
        if (found := read_tool(tool, folder)) != count:
            raise RuntimeError(f"{tool} gave {found} points of {count}")

    first = timed(once)
    return {"first": first, "again": min(timed(once) for _ in range(3))}


def tail(folder: str, tool: str, count: int) -> dict[str, float]:
    """Seconds of one look that finds what was logged since the last one; who cannot go on reads all of it again."""
    look = {"fsrun": _tail_fsrun, "tensorboardX": _tail_tensorboard}.get(tool, _read_again)
    return {"seconds": look(folder, tool, count)}


def _tail_fsrun(folder: str, tool: str, count: int) -> float:
    from peers import open_tool

    import fsrun

    log, end = open_tool(tool, folder)
    _log_more(log, 0, count)
    end()
    began = 0.0

    def stop() -> bool:
        nonlocal began
        if not began:
            _log_more(log, count, NEW)
            end()
            began = time.perf_counter()
        return False

    new = fsrun.open(f"{folder}/bench/run").follow(replay=False, poll=0.0, stop=stop)
    for _ in range(NEW):
        next(new)
    return time.perf_counter() - began


def _tail_tensorboard(folder: str, tool: str, count: int) -> float:
    from peers import TAG, accumulator
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(folder)

    def log(values: dict[str, float], step: int) -> None:
        writer.add_scalar(TAG, values[TAG], step)

    _log_more(log, 0, count)
    writer.flush()
    time.sleep(0.5)
    events = accumulator(folder)
    time.sleep(2.0)  # its flush does not wait for all, and its buffer keeps the last ones
    seen = len(events.Reload().Scalars(TAG))
    _log_more(log, count, NEW)
    writer.flush()
    time.sleep(0.5)  # its flush does not wait for all
    began = time.perf_counter()
    if (found := len(events.Reload().Scalars(TAG)) - seen) < NEW - 50:  # the last ones may still be on their way
        raise RuntimeError(f"TensorBoard saw {found} new points of {NEW}")
    return time.perf_counter() - began


def _read_again(folder: str, tool: str, count: int) -> float:
    from peers import open_tool, read_tool

    log, end = open_tool(tool, folder)
    _log_more(log, 0, count + NEW)
    end()
    read_tool(tool, folder)
    return timed(lambda: read_tool(tool, folder))


def _log_more(log: Callable[[dict[str, float], int], Any], first: int, count: int) -> None:
    from peers import TAG

    for step in range(first, first + count):
        log({TAG: step * 0.001}, step)
