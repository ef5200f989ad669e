"""fsrun and its peers behind one small face: open, log, end. Loaded in a child process, one tool in each."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

Log = Callable[[dict[str, float], int], Any]


def open_tool(tool: str, folder: str) -> tuple[Log, Callable[[], Any]]:
    """A function that logs a dict at a step as the tool's users do, and one that makes all of it durable and ends."""
    return {"fsrun": _fsrun, "trackio": _trackio, "tensorboardX": _tensorboardx}[tool](folder)


def _fsrun(folder: str) -> tuple[Log, Callable[[], Any]]:
    import fsrun

    run = fsrun.init("bench", root=folder)

    def end() -> None:
        if not run.flush(600):
            raise RuntimeError("not durable")

    return run.add_scalar, end


def _trackio(folder: str) -> tuple[Log, Callable[[], Any]]:
    os.environ |= {"TRACKIO_DIR": folder, "HF_HUB_OFFLINE": "1"}
    import trackio

    run = trackio.init("bench", embed=False, auto_log_gpu=False, auto_log_cpu=False)
    return run.log, trackio.finish


def _tensorboardx(folder: str) -> tuple[Log, Callable[[], Any]]:
    import tensorboardX

    writer = tensorboardX.SummaryWriter(folder)
    add = writer.add_scalar

    def log(values: dict[str, float], step: int) -> None:
        for tag, value in values.items():
            add(tag, value, step)

    return log, writer.close
