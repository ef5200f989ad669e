"""Rows about `fsrun ls`: over 100, 1,000 and 10,000 runs, few or all of them live; the start of Python is in it."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time

from rows import Row, Settings, medians

import daemon

ROOTS = ((100, 10), (1_000, 100), (1_000, 1_000), (10_000, 100))


def measure(settings: Settings) -> list[Row]:
    rows = []
    for runs, live in ROOTS[:3] if settings.quick else ROOTS:
        root = settings.folder / "listing"
        try:
            daemon.build(root, runs, live)
            found = medians([_list(str(root), runs) for _ in range(settings.rounds)])
        finally:
            shutil.rmtree(root, ignore_errors=True)
        goal = 0.5 if runs == 10_000 else None
        note = f"processor time {found['processor']:.2f} s"
        rows.append(
            Row("ls", f"`fsrun ls`, {runs:,} runs of which {live:,} live", found["seconds"], "s", goal, note=note)
        )
    return rows


def _list(root: str, runs: int) -> dict[str, float]:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    command = [os.path.join(os.path.dirname(sys.executable), "fsrun"), "ls", root]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seconds = time.perf_counter() - began
    if said.count("\n") != runs + 1:
        raise RuntimeError(f"{said.count(chr(10)) - 1} runs of {runs} were listed")
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"seconds": seconds, "processor": now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime}
