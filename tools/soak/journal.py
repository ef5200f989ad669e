"""What a child did and when, kept on a local folder: one JSON line an event, one clock for all children.

A line is handed to the kernel before the child goes on, so that SIGKILL takes nothing from it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any


def now() -> float:
    """Seconds on the clock that all children of this machine share, and that nothing sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Journal:
    """One file of one child; threads share it."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = os.open(folder / f"{name}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._lock = threading.Lock()

    def __call__(self, event: str, **facts: Any) -> None:
        line = json.dumps({"event": event, "at": now(), **facts}).encode() + b"\n"
        with self._lock:
            os.write(self._file, line)


def read(path: Path) -> list[dict[str, Any]]:
    """The events of a journal; a last line that a kill has cut is left out."""
    events = []
    for line in path.read_bytes().split(b"\n"):
        try:
            events.append(json.loads(line))
        except ValueError:
            continue
    return events
