"""Rows about logging: what a call costs, a tight loop up to durable storage; processor time, bytes and memory."""

from __future__ import annotations

import random
import resource
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from rows import Row, Settings, child, child_command, turns

BURST = 50_000
PAUSE = 1.0
LOOPS = {1: (1_000_000, 30_000), 10: (300_000, 6_000), 100: (30_000, 500)}
"""Keys a call -> calls of fsrun, and of peers: they take so much longer that fewer say the same."""
THREADS = 8
WORDS = {1: "one key", 10: "ten keys", 100: "100 keys"}


def measure(settings: Settings) -> list[Row]:
    return [*_calls(settings), *_loops(settings), *_threads(settings), *_memory(settings)]


def _calls(settings: Settings) -> list[Row]:
    rows = []
    ours, theirs = (settings.points(count) for count in (BURST, BURST // 5))
    for reading in (False, True):

        def work(tool: str, turn: int, reading: bool = reading) -> dict[str, Any]:
            return _run(settings, tool, "bursts", ours if tool == "fsrun" else theirs, reading)

        found = turns(settings, work)
        note = f"bursts of {ours:,}, of peers {theirs:,}; the timer taken off"
        if reading:
            note = "the other reads all of it, again and again; the timer taken off"
        where = "while another process reads, " if reading else ""
        for key, goal in (("p50", 0.5), ("p99", 5.0), ("p99.9", None)):
            what = f"a call of add_scalar, one key, {where}{key}"
            rows.append(found.row("logging", what, key, "us", None if reading else goal, note=note))
    return rows


def _loops(settings: Settings) -> list[Row]:
    rows, costs = [], []
    for keys, goal in ((1, 400.0), (10, 1300.0), (100, None)):
        ours, theirs = (settings.points(calls) for calls in LOOPS[keys])

        def work(tool: str, turn: int, keys: int = keys, ours: int = ours, theirs: int = theirs) -> dict[str, Any]:
            return _run(settings, tool, "tight", keys, ours if tool == "fsrun" else theirs)

        found = turns(settings, work)
        what = f"tight loop to durable storage, {WORDS[keys]} a call"
        rows.append(found.row("logging", what, "points", "k points/s", goal, scale=1e-3, more_is_better=True))
        if keys < 100:
            what = f"processor time a point, {WORDS[keys]} a call, to durable storage"
            costs.append(found.row("logging", what, "cpu", "us", scale=1e6))
            costs.append(found.row("logging", f"a point on disk, {WORDS[keys]} a call", "bytes", "bytes"))
    return rows + costs


def _threads(settings: Settings) -> list[Row]:
    ours, theirs = (settings.points(calls) for calls in LOOPS[1])
    found = turns(settings, lambda tool, _: _run(settings, tool, "threaded", ours if tool == "fsrun" else theirs))
    what = f"tight loop to durable storage, one key a call, from {THREADS} threads"
    return [found.row("logging", what, "points", "k points/s", scale=1e-3, more_is_better=True)]


def _memory(settings: Settings) -> list[Row]:
    count = settings.points(10_000_000)
    grown = _run(settings, "fsrun", "memory", count)
    note = "once; peers would take an hour"
    return [Row("logging", f"memory for {count:,} points in a tight loop", grown["grown_mb"], "MB", 64.0, note=note)]


def _run(settings: Settings, tool: str, work: str, *arguments: object) -> dict[str, Any]:
    folder = settings.folder / f"logging-{tool}"
    folder.mkdir()
    try:
        return child("logging_rows", work, folder, tool, *arguments, python=settings.tools[tool])
    finally:
        shutil.rmtree(folder)


# What follows runs in a child.


def bursts(folder: str, tool: str, count: int, reading: bool) -> dict[str, float]:
    """Percentiles (us) of single calls in two bursts with pauses, as a training loop has them; the timer taken off."""
    from peers import CannotError, open_tool, read_tool

    log, end = open_tool(tool, folder)
    values = [random.random() for _ in range(count)]
    reader = None
    if reading:
        log({"train/loss": 0.0}, 0)
        time.sleep(PAUSE)
        try:
            read_tool(tool, folder)
        except CannotError:
            raise
        except Exception:  # nothing to read yet
            pass
        reader = subprocess.Popen(child_command("logging_rows", "read_on", folder, tool), stdout=subprocess.DEVNULL)
        time.sleep(PAUSE)
    clock = time.perf_counter_ns
    timer = statistics.median(-(clock() - clock()) for _ in range(count))
    costs: list[float] = []
    for burst in range(2):
        for i in range(count):
            point = {"train/loss": values[i]}
            began = clock()
            log(point, burst * count + i + 1)
            costs.append(clock() - began - timer)
        time.sleep(PAUSE)
    if reader is not None:
        reader.kill()
        reader.wait()
    end()
    costs.sort()
    return {name: costs[int(len(costs) * q)] / 1000 for name, q in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))}


def read_on(folder: str, tool: str) -> dict[str, float]:
    """Read the run again and again until killed; what cannot be read yet is tried again."""
    from peers import read_tool

    while True:
        try:
            read_tool(tool, folder)
        except Exception as error:
            print(error, file=sys.stderr)
        time.sleep(0.1)


def tight(folder: str, tool: str, keys: int, count: int) -> dict[str, float]:
    """Points a second from the first call until all of them are durable (fsrun) or written (peers, by their end)."""
    values = {f"train/k{i}": random.random() for i in range(keys)}
    fixed, fixed_processor = _fixed(tool, folder, values)
    before = _size(folder)
    log, end = _opened(tool, folder, "run")
    log(values, 0)
    began, processor = time.perf_counter(), _processor()
    for step in range(1, count):
        values["train/k0"] = step * 0.001
        log(values, step)
    end()
    points = keys * (count - 1)
    taken = time.perf_counter() - began - fixed
    cost = _processor() - processor - fixed_processor
    return {"points": points / taken, "cpu": cost / points, "bytes": (_size(folder) - before) / points}


def _fixed(tool: str, folder: str, values: dict[str, float]) -> tuple[float, float]:
    """Seconds, and those on a processor, of the end of a run with one call: no part of what points cost."""
    log, end = _opened(tool, folder, "before")
    log(values, 0)
    time.sleep(1.0)  # so that the point is on its way, and the end has nothing else to do
    began, processor = time.perf_counter(), _processor()
    end()
    return time.perf_counter() - began, _processor() - processor


def _opened(tool: str, folder: str, name: str) -> Any:
    from peers import open_tool

    place = Path(folder, name)
    place.mkdir()
    return open_tool(tool, str(place))


def threaded(folder: str, tool: str, count: int) -> dict[str, float]:
    """As ``tight``, from several threads that share the points; each has a tag of its own."""
    from peers import CannotError

    if tool == "wandb":
        raise CannotError("it drops steps that come out of order")
    fixed, _ = _fixed(tool, folder, {"train/k0": 0.0})
    log, end = _opened(tool, folder, "run")
    log({"train/k0": 0.0}, 0)
    each = count // THREADS
    together = threading.Barrier(THREADS + 1)

    def work(tag: str) -> None:
        together.wait()
        for step in range(1, each):
            log({tag: step * 0.001}, step)

    threads = [threading.Thread(target=work, args=(f"train/k{i}",)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    together.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    end()
    return {"points": THREADS * (each - 1) / (time.perf_counter() - began - fixed)}


def memory(folder: str, tool: str, count: int) -> dict[str, float]:
    """Growth of the peak resident size over what it was after the first points (MB)."""
    from peers import open_tool

    log, end = open_tool(tool, folder)
    values = {"train/loss": 0.0}
    for step in range(100):
        log(values, step)
    before = _peak()
    for step in range(100, count):
        values["train/loss"] = step * 0.001
        log(values, step)
    end()
    return {"grown_mb": _peak() - before}


def _processor() -> float:
    """Seconds on a processor, of this process and of those it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _size(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def _peak() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmHWM in /proc/self/status")
