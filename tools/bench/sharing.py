"""Rows about what two processes share: how soon a point is seen, what a hand-over costs the trainer."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rows import Row, Settings, child

_TRAINER = """
import sys, time, fsrun
with fsrun.init("bench", run_id="seen", root=sys.argv[1]) as run:
    for step in range(int(sys.argv[2])):
        run.add_scalar({"train/loss": 0.5}, step)
        print(step, time.time(), flush=True)
        time.sleep(0.29)
"""


def visibility(settings: Settings) -> list[Row]:
    """From the call to the line that another process reads from the log."""
    folder = settings.folder / "visibility"
    count = 10 if settings.quick else 40
    log = folder / "bench" / "seen" / "scalars" / "main.1.jsonl"
    command = [sys.executable, "-c", _TRAINER, str(folder), str(count)]
    seen: dict[int, float] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:
        while len(seen) < count:
            if log.exists():
                for step in range(len(seen), log.read_bytes().count(b"\n")):
                    seen[step] = time.time()
            time.sleep(0.005)
            if trainer.poll() not in (None, 0):
                raise RuntimeError("the trainer failed")
        assert trainer.stdout is not None
        called = {int(step): float(when) for step, when in map(str.split, trainer.stdout)}
    shutil.rmtree(folder)
    delays = [seen[step] - called[step] for step in called]
    return [
        Row("visibility", "a point seen by another process, median", statistics.median(delays), "s", note="local disk"),
        Row("visibility", "a point seen by another process, latest", max(delays), "s", 1.0, note=f"of {count}"),
    ]


def handover(settings: Settings) -> list[Row]:
    """What ``enqueue`` costs the trainer: by link, on one file system."""
    folder = settings.folder / "handover"
    folder.mkdir()
    size = 10 << 30
    try:
        result = child("sharing", "hand_over", folder, size, settings.rounds * 4)
    finally:
        shutil.rmtree(folder)
    return [
        Row("handover", "enqueue of a 10 GB file", result["file_ms"], "ms", 5.0, note="a sparse file, by link"),
        Row("handover", "enqueue of a folder of 100 files", result["folder_ms"], "ms", 50.0, note="by links"),
    ]


# What follows runs in a child.


def hand_over(folder: str, size: int, count: int) -> dict[str, Any]:
    """Medians of ``count`` hand-overs each, up to the return of ``enqueue``; each is durable before the next."""
    import fsrun

    taken: dict[str, list[float]] = {"file_ms": [], "folder_ms": []}
    with fsrun.init("bench", run_id="queue", root=folder) as run:
        for i in range(count):
            file = Path(folder, f"step_{i}.pt")
            with open(file, "wb") as made:
                made.truncate(size)
            parts = Path(folder, f"checkpoint-{i}")
            parts.mkdir()
            for part in range(100):
                (parts / f"part-{part:03d}.bin").write_bytes(os.urandom(1024))
            for path, name in ((file, "file_ms"), (parts, "folder_ms")):
                began = time.perf_counter()
                entry = run.enqueue(path, step=i)
                taken[name].append((time.perf_counter() - began) * 1000)
                queued = Path(run.path, "queue", str(entry))
                while not queued.exists():
                    time.sleep(0.001)
    return {name: statistics.median(values) for name, values in taken.items()}
