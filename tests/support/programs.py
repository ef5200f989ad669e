"""Real programs that use fsrun, started, signalled and always reaped; and what they left in the run folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE = 120.0
"""Seconds after which a program that should have ended is killed: generous, since the machine may be busy."""


def environment(root: Path, *, arrow: bool = False, **more: str) -> dict[str, str]:
    """An environment without ranks, with runs below ``root`` and a short timeout.

    Without ``arrow`` no data.parquet is built at the end, which saves most of a small program's time.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FSRUN", "SLURM", "OMPI", "PMI"))}
    for name in ("RANK", "WORLD_SIZE"):
        kept.pop(name, None)
    own = {
        "FSRUN_ROOT": str(root),
        "FSRUN_SPILL": f"{root}.spill",
        "FSRUN_TIMEOUT": "3",
        "FSRUN_COMPACT": "1" if arrow else "0",
        "FSRUN_CAPTURE": "0",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }
    return kept | own | more


@contextmanager
def program(
    code: str, root: Path, *arguments: str, arrow: bool = False, **more: str
) -> Iterator[subprocess.Popen[str]]:
    """Start a program; whatever happens, it is gone afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=root,
        env=environment(root, arrow=arrow, **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def ready(process: subprocess.Popen[str], word: str = "ready") -> None:
    """Wait for the program to print ``word``."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == word:
            return
    process.wait(PATIENCE)
    said = process.stderr.read() if process.stderr else ""
    raise AssertionError(f"ended with {process.returncode} before it was ready: {said}")


def done(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for the end; exit code (negative: the signal), stdout, stderr."""
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def run_program(code: str, root: Path, *arguments: str, arrow: bool = False, **more: str) -> tuple[int, str, str]:
    """Run a program to its end."""
    with program(code, root, *arguments, arrow=arrow, **more) as process:
        return done(process)


def read(path: Path) -> dict[str, Any]:
    """A record."""
    value = json.loads(path.read_text())
    assert isinstance(value, dict)
    return value


def jobs(run: Path) -> list[str]:
    """The names in ``jobs/``, sorted."""
    return sorted(os.listdir(run / "jobs"))


def lines(run: Path, job: str = "main") -> list[dict[str, Any]]:
    """Every scalar line of a job, session by session."""
    paths = sorted((run / "scalars").glob(f"{job}.*.jsonl"), key=lambda p: int(p.name.split(".")[1]))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def count_lines(run: Path, job: str = "main") -> int:
    """How many there are that are whole, also in a log that is being written to."""
    return sum(path.read_bytes().count(b"\n") for path in (run / "scalars").glob(f"{job}.*.jsonl"))


class Lag:
    """How late this machine wakes whoever sleeps, at worst: ``with Lag() as lag: ...; lag.worst``, in seconds.

    Where that is much, a time that was measured meanwhile says nothing about the code.
    """

    def __init__(self) -> None:
        self.worst = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Lag:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._over.wait(0.02):
            now = time.monotonic()
            self.worst = max(self.worst, now - before - 0.02)
            before = now


def until(condition: Any, patience: float = PATIENCE) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
