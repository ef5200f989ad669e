"""Rows about the viewer: what 10,000 runs cost the server, of which 100 are live, and how soon a page has them.

The server is a real `fsrun up --no-daemon`; the live runs seem to be held on another host, and are looked at every
second.
"""

from __future__ import annotations

import gzip
import json
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request

from rows import Row, Settings

import daemon


def measure(settings: Settings) -> list[Row]:
    runs, live = (1_000, 100) if settings.quick else (10_000, 100)
    root = settings.folder / "viewing"
    try:
        daemon.build(root, runs, live)
        found = _serve(str(root), 2.0 if settings.quick else 20.0)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    what = f"viewer, {runs:,} runs of which {live} live"
    return [
        Row("viewer", f"{what}: processor time of start and first look", found["first"], "s", 8.0),
        Row("viewer", f"{what}: of a core, while it watches", found["core"], "%", 5.0),
        Row("viewer", f"{what}: memory", found["memory"], "MB", 200.0),
        Row("viewer", f"{what}: all rows, until they are there", found["all"], "s", 0.5),
        Row("viewer", f"{what}: all rows, on the line", found["bytes"] / 1e6, "MB"),
        Row("viewer", f"{what}: what changed, until it is there", found["changed"], "s", 0.05),
    ]


def _serve(root: str, seconds: float) -> dict[str, float]:
    command = [sys.executable, "-m", "fsrun", "up", root, "--port", "0", "--no-daemon"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        while (answer := _get(address, ""))[0]["scanning"]:
            time.sleep(0.2)
        first = daemon._cpu(server.pid)
        every = [_get(address, "") for _ in range(5)]
        changed = [_get(address, answer[0]["cursor"]) for _ in range(20)]
        before, began = daemon._cpu(server.pid), time.monotonic()
        time.sleep(seconds)
        return {
            "first": first,
            "core": 100 * (daemon._cpu(server.pid) - before) / (time.monotonic() - began),
            "memory": daemon._memory(server.pid),
            "all": statistics.median(took for _, _, took in every),
            "bytes": every[0][1],
            "changed": statistics.median(took for _, _, took in changed),
        }
    finally:
        server.terminate()
        server.wait()


def _get(address: str, cursor: str) -> tuple[dict[str, object], int, float]:
    """The answer, its bytes on the line, and the seconds until they were there."""
    asked = urllib.request.Request(f"{address}api/runs?since={cursor}", headers={"Accept-Encoding": "gzip"})
    began = time.perf_counter()
    with urllib.request.urlopen(asked) as answer:
        data = answer.read()
    took = time.perf_counter() - began
    plain = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    return json.loads(plain), len(data), took
