"""Rows about reading 10^6 points: of a live run, of one with a cache, and compacted."""

from __future__ import annotations

import atexit
import math
import os
import shutil
import time
from pathlib import Path
from typing import Any

from rows import Row, Settings, child, medians


def measure(settings: Settings) -> list[Row]:
    count = settings.points(1_000_000)
    folder = settings.folder / "reading"
    try:
        made = child("reading", "make", folder, count)
        results = [child("reading", "read", folder) for _ in range(settings.rounds)]
        child("reading", "compact", folder)
        cached = [child("reading", "read", folder) for _ in range(settings.rounds)]
        child("reading", "finish", folder)
        compacted = [child("reading", "read", folder) for _ in range(settings.rounds)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = []
    for results_of, name, goal in (
        (results, "a live run, no cache", None),
        (cached, "a live run with a data.parquet as its cache", 0.1),
        (compacted, "a compacted run", 0.03),
    ):
        taken = medians(results_of)
        rows.append(Row("reading", f"{count:,} points of {name}", taken["seconds"], "s", goal))
    size = medians(compacted)["parquet_bytes"] / count
    rows.append(Row("reading", "a point of a smooth series, compacted", size, "bytes", 9.0))
    rows.append(Row("reading", "a point in the log", made["log_bytes"] / count, "bytes"))
    return rows


# What follows runs in a child.


def make(folder: str, count: int) -> dict[str, float]:
    """A run whose main job dies without an end, so that it counts as live: ``count`` points of one smooth series."""
    import fsrun

    run = fsrun.init("bench", run_id="live", root=folder)
    for step in range(count):
        run.add_scalar({"train/loss": math.exp(-step / count)}, step)
    run.flush(600)
    # Registered last, so it runs first: nothing ends the run, as after SIGKILL.
    atexit.register(os._exit, 0)
    return {"log_bytes": Path(run.path, "scalars", "main.1.jsonl").stat().st_size}


def read(folder: str) -> dict[str, Any]:
    """Seconds from opening to columns in memory, the best of three: the first one also loads pyarrow."""
    import fsrun

    path = str(Path(folder, "bench", "live"))
    best = math.inf
    for _ in range(3):
        began = time.perf_counter()
        table = fsrun.open(path).scalars()
        best = min(best, time.perf_counter() - began)
    data = Path(path, "data.parquet")
    size = data.stat().st_size if data.exists() else 0
    return {"seconds": best, "rows": table.num_rows, "parquet_bytes": size}


def compact(folder: str) -> dict[str, str]:
    """What `fsrun compact` does."""
    from fsrun.run.compact import compact as build

    return {"path": str(build(str(Path(folder, "bench", "live"))))}


def finish(folder: str) -> dict[str, str]:
    """The run goes on and ends, which compacts it."""
    import fsrun

    with fsrun.init("bench", run_id="live", root=folder) as run:
        pass
    return {"path": run.path}
