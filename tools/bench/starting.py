"""Rows about what it costs to start and to end: import, the command line, the first point, the last compaction."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from rows import Row, Settings, child, medians, turns

_COMMANDS = {
    "fsrun": ["fsrun", "--version"],
    "trackio": ["trackio", "--help"],
    "tensorboardX": ["tensorboard", "--version"],
    "wandb": ["wandb", "--version"],
    "mlflow": ["mlflow", "--version"],
    "aim": ["aim", "version"],
}


def measure(settings: Settings) -> list[Row]:
    return [*_imports(settings), *_commands(settings), *_first_point(settings), *_end(settings)]


def _imports(settings: Settings) -> list[Row]:
    def work(tool: str, turn: int) -> dict[str, Any]:
        python = settings.tools[tool]
        bare = _run([python, "-c", "pass"])
        found = {"over": max(0.1, _run([python, "-c", f"import {tool}"]) - bare), "bare": bare, "all": 0.0}
        if tool == "fsrun":
            found["all"] = _run([python, "-c", "import fsrun; fsrun.init; fsrun.open"]) - bare
        return found

    found = turns(Settings(settings.folder, settings.rounds * 2, settings.quick, settings.tools), work)
    ours = found.medians["fsrun"]
    return [
        found.row("start", "import, over bare Python", "over", "ms", 30.0, note=f"bare Python: {ours['bare']:.0f} ms"),
        Row("start", "import of what init and open need, over bare Python", ours["all"], "ms"),
    ]


def _commands(settings: Settings) -> list[Row]:
    def work(tool: str, turn: int) -> dict[str, Any]:
        name, *more = _COMMANDS[tool]
        return {"ms": _run([str(Path(settings.tools[tool]).parent / name), *more])}

    note = ", ".join(" ".join(_COMMANDS[tool]) for tool in settings.tools)
    return [turns(settings, work).row("start", "the command line, to its version", "ms", "ms", note=note)]


def _run(command: list[str]) -> float:
    """Milliseconds of a command, the least of two."""
    taken = []
    for _ in range(2):
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        taken.append((time.perf_counter() - began) * 1000)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")
    return min(taken)


def _first_point(settings: Settings) -> list[Row]:
    def work(tool: str, turn: int) -> dict[str, Any]:
        folder = settings.folder / f"start-{tool}"
        folder.mkdir()
        try:
            return child("starting", "first", folder, tool, python=settings.tools[tool])
        finally:
            shutil.rmtree(folder)

    found = turns(settings, work)
    return [
        found.row(
            "start", "import, open a run, log a point, have it durable (peers: written, by their end)", "first", "s"
        ),
        found.row("start", "the same once more in that process", "second", "s"),
    ]


def _end(settings: Settings) -> list[Row]:
    count = settings.points(1_000_000)
    rows = []
    for points, name in ((100, "100"), (count, f"{count:,}")):
        found = []
        for _ in range(settings.rounds):
            folder = settings.folder / "start-end"
            try:
                found.append(child("starting", "end", folder, points))
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        taken = medians(found)
        rows.append(Row("start", f"end of a run of {name} points, to its data.parquet", taken["seconds"], "s"))
    return rows


# What follows runs in a child.


def first(folder: str, tool: str) -> dict[str, float]:
    from peers import TAG, open_tool

    taken = []
    for name in ("a", "b"):
        place = Path(folder, name)
        place.mkdir()
        began = time.perf_counter()
        log, end = open_tool(tool, str(place))
        log({TAG: 0.5}, 0)
        end()
        taken.append(time.perf_counter() - began)
    return {"first": taken[0], "second": taken[1]}


def end(folder: str, count: int) -> dict[str, float]:
    import fsrun

    run = fsrun.init("bench", run_id="ends", root=folder, capture=False)
    for step in range(count):
        run.add_scalar({"train/loss": step * 0.001}, step)
    run.flush(600)
    began = time.perf_counter()
    run.finish()
    if not os.path.exists(f"{run.path}/data.parquet"):
        raise RuntimeError("no data.parquet")
    return {"seconds": time.perf_counter() - began}
