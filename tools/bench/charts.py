"""Rows about charts: how soon a page has what it draws of a series of 10^6 points, and a point that was just logged.

What is measured is all that the server does for it: a real `fsrun up --no-daemon`, just started, is asked for the list
of series and then for one of them, as the page asks. Drawing it takes a browser some 50 ms more (tests/browser).
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from rows import Row, Settings, child

import daemon

RUN = "api/runs/bench/live"
SERIES = f"{RUN}/series?tag=train/loss&x=step&points=1600"


def measure(settings: Settings) -> list[Row]:
    count = settings.points(1_000_000)
    folder = settings.folder / "charts"
    try:
        child("reading", "make", folder, count)
        logs = [_serve(folder) for _ in range(settings.rounds)]
        child("reading", "compact", folder)
        cached = [_serve(folder) for _ in range(settings.rounds)]
        fresh = _serve(folder, points=10)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    first = f"{count:,} points on a page, the first time"
    return [
        Row("charts", f"{first}, no cache", _median(logs, "first"), "s", 1.0),
        Row("charts", f"{first}, with a data.parquet as its cache", _median(cached, "first"), "s", 0.5),
        Row("charts", f"{count:,} points on a page, again", _median(cached, "again"), "s", 0.1),
        Row("charts", f"a new point behind {count:,}, from its line to the answer", fresh["point"], "s", 0.2),
        Row("charts", f"memory of a viewer that shows {count:,} points", _median(cached, "memory"), "MB", 400.0),
    ]


def _median(results: list[dict[str, float]], name: str) -> float:
    return statistics.median(result[name] for result in results)


def _serve(root: Path, points: int = 0) -> dict[str, float]:
    command = [sys.executable, "-m", "fsrun", "up", str(root), "--port", "0", "--no-daemon"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        while _get(address, "api/runs?since=")["scanning"]:
            time.sleep(0.1)
        times = []
        for _ in range(4):
            began = time.perf_counter()
            _get(address, f"{RUN}/tags")
            _get(address, SERIES)
            times.append(time.perf_counter() - began)
        new = [_point(address, root) for _ in range(points)]
        return {
            "first": times[0],
            "again": min(times[1:]),
            "memory": daemon._memory(server.pid),
            "point": statistics.median(new) if new else 0.0,
        }
    finally:
        server.terminate()
        server.wait()


def _point(address: str, root: Path) -> float:
    """Seconds from a line in the log until an answer holds its point. The page asks every second."""
    log = root / "bench" / "live" / "scalars" / "main.1.jsonl"
    step = int(_get(address, f"{RUN}/tags")["tags"][0]["last_step"]) + 1
    # A look is good for a moment for whoever asks; what is measured comes after that.
    time.sleep(0.5)
    with log.open("ab") as file:
        file.write(json.dumps({"step": step, "time": time.time(), "train/loss": 0.5}).encode() + b"\n")
    began = time.perf_counter()
    while _get(address, SERIES)["series"][0]["x"][-1] != step:
        pass
    return time.perf_counter() - began


def _get(address: str, path: str) -> Any:
    with urllib.request.urlopen(address + path) as answer:
        return json.load(answer)
