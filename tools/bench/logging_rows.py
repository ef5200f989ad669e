"""Rows about logging: what a call costs, a tight loop up to durable storage, and its memory."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import Any

from rows import Row, Settings, child, installed_peers, medians

BURST = 50_000
PAUSE = 1.0


def measure(settings: Settings) -> list[Row]:
    tools = ["fsrun", *installed_peers()]
    bursts: dict[str, list[dict[str, Any]]] = {tool: [] for tool in tools}
    loops: dict[tuple[str, int], list[dict[str, Any]]] = {(tool, keys): [] for tool in tools for keys in (1, 10)}
    for turn in range(settings.rounds):
        for tool in tools:
            bursts[tool].append(_run(settings, f"{tool}-{turn}", "bursts", tool, settings.points(BURST)))
            for keys, full in ((1, 1_000_000), (10, 300_000)):
                # Peers take so much longer that a twentieth of the points says the same.
                count = settings.points(full if tool == "fsrun" else full // 20)
                loops[tool, keys].append(_run(settings, f"{tool}-{turn}-{keys}", "tight", tool, keys, count))
    costs = {tool: medians(results) for tool, results in bursts.items()}
    rates = {key: medians(results)["points"] for key, results in loops.items()}
    rows = []
    for key, name, goal in (("p50", "p50", 0.5), ("p99", "p99", 5.0), ("p999", "p99.9", None)):
        rows.append(
            Row(
                "logging",
                f"a call of add_scalar, one key, {name}",
                costs["fsrun"][key],
                "us",
                goal,
                peers={tool: costs[tool][key] for tool in tools[1:]},
                note=f"bursts of {settings.points(BURST):,}, timer included",
            )
        )
    for keys, name, goal in ((1, "one key", 400.0), (10, "ten keys", 1300.0)):
        rows.append(
            Row(
                "logging",
                f"tight loop to durable storage, {name} a call",
                rates["fsrun", keys] / 1000,
                "k points/s",
                goal,
                more_is_better=True,
                peers={tool: rates[tool, keys] / 1000 for tool in tools[1:]},
            )
        )
    count = settings.points(10_000_000)
    grown = _run(settings, "memory", "memory", count)
    rows.append(Row("logging", f"memory for {count:,} points in a tight loop", grown["grown_mb"], "MB", 64.0))
    return rows


def _run(settings: Settings, name: str, work: str, *arguments: object) -> dict[str, Any]:
    folder = settings.folder / f"logging-{name}"
    folder.mkdir()
    try:
        return child("logging_rows", work, folder, *arguments)
    finally:
        shutil.rmtree(folder)


# What follows runs in a child.


def bursts(folder: str, tool: str, count: int) -> dict[str, float]:
    """Percentiles (us) of single calls in two bursts with pauses, as a training loop has them."""
    from peers import open_tool

    log, end = open_tool(tool, folder)
    values = [random.random() for _ in range(count)]
    clock = time.perf_counter_ns
    costs: list[int] = []
    for burst in range(2):
        for i in range(count):
            point = {"train/loss": values[i]}
            began = clock()
            log(point, burst * count + i)
            costs.append(clock() - began)
        time.sleep(PAUSE)
    end()
    costs.sort()
    return {name: costs[int(len(costs) * q)] / 1000 for name, q in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))}


def tight(folder: str, tool: str, keys: int, count: int) -> dict[str, float]:
    """Points a second from the first call until all of them are durable (fsrun) or written (peers)."""
    from peers import open_tool

    log, end = open_tool(tool, folder)
    values = {f"train/k{i}": random.random() for i in range(keys)}
    log(values, 0)
    began = time.perf_counter()
    for step in range(1, count):
        values["train/k0"] = step * 0.001
        log(values, step)
    end()
    return {"points": keys * (count - 1) / (time.perf_counter() - began)}


def memory(folder: str, count: int) -> dict[str, float]:
    """Growth of the peak resident size over what it was after the first points (MB)."""
    from peers import open_tool

    log, end = open_tool("fsrun", folder)
    values = {"train/loss": 0.0}
    for step in range(100):
        log(values, step)
    before = _peak()
    for step in range(100, count):
        values["train/loss"] = step * 0.001
        log(values, step)
    end()
    return {"grown_mb": _peak() - before}


def _peak() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmHWM in /proc/self/status")
