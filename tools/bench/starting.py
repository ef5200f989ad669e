"""Rows about what it costs to start: import, and the first run."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from rows import Row, Settings, installed_peers


def measure(settings: Settings) -> list[Row]:
    programs = {
        "bare": "pass",
        "fsrun": "import fsrun",
        "all": "import fsrun; fsrun.init; fsrun.open",
        **{peer: f"import {peer}" for peer in installed_peers()},
    }
    taken: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(settings.rounds * 3):
        for name, program in programs.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
            taken[name].append((time.perf_counter() - began) * 1000)
    ms = {name: statistics.median(values) for name, values in taken.items()}
    bare = ms["bare"]
    return [
        Row(
            "import",
            "import fsrun, over bare Python",
            max(0.1, ms["fsrun"] - bare),
            "ms",
            30.0,
            peers={peer: ms[peer] - bare for peer in installed_peers()},
            note=f"bare Python: {bare:.0f} ms",
        ),
        Row("import", "import of what init and open need, over bare Python", ms["all"] - bare, "ms"),
    ]
