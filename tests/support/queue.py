"""A run with a queue for tests: folders, sessions that are opened and closed by hand, and an evaluator's context."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsrun.core import codec, layout
from fsrun.core.errors import HeldError
from fsrun.core.ids import is_entry
from fsrun.core.records import Outcome
from fsrun.core.timing import Timing
from fsrun.disk.fs import FileSystem, LocalFileSystem
from fsrun.disk.store import Store
from fsrun.run.handover import HandOver


class HandSession:
    """What the queue needs of a session, opened, closed and continued by the test."""

    def __init__(self, fs: FileSystem, run_dir: str, job: str, number: int, timing: Timing | None = None) -> None:
        self.run_dir, self.job, self.number = run_dir, job, number
        self.token = f"token{job.replace('-', '').replace('_', '')}{number:03d}"[-32:]
        self.timing = timing or Timing(30.0)
        self.store = Store(fs, run_dir, job, number)
        self.fenced = False
        self.protected = 0

    def require_protected(self, timeout: float | None = None) -> int:
        if self.fenced:
            raise HeldError(f"{self.run_dir}: job {self.job!r} was taken over")
        self.protected += 1
        return self.number

    def go_on(self) -> None:
        """Closed by a false verdict, and continued as the next session."""
        end(self.run_dir, self.job, self.number, "crashed")
        self.number += 1
        lock(self.run_dir, self.job, self.number, continues=True)
        self.store = Store(self.store.fs, self.run_dir, self.job, self.number)


def lock(run_dir: str | Path, job: str, number: int, **fields: Any) -> None:
    record = {"protocol": "1.0", "job": job, "session": number, "token": f"token{job}{number:03d}", "timeout": 30.0}
    path = Path(run_dir, "jobs", layout.lock_name(job, number))
    path.write_bytes(codec.encode_record(record | {"holder": {"host": "h"}} | fields))


def end(run_dir: str | Path, job: str, number: int, status: str = "finished") -> None:
    path = Path(run_dir, "jobs", layout.end_name(job, number))
    path.write_bytes(codec.encode_record({"job": job, "session": number, "status": status}))


@dataclass
class Context:
    """An evaluator's context that remembers what it was told."""

    session: Any
    unit: Store
    main: tuple[int, str, int | None] = (1, "running", None)
    lines: list[tuple[str, int, dict[str, Any], int | None]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def log_outcome(
        self, entry: str, attempt: int, scores: Mapping[str, int | float], step: int | None, time: float
    ) -> None:
        self.lines.append((entry, attempt, dict(scores), step))

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def main_state(self, *, step: bool = True) -> tuple[int, str, int | None]:
        return self.main


def make_run(folder: Path, unit: Path | None = None) -> Path:
    """A run folder with an open main session, and its unit."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in layout.RUN_FOLDERS:
        (folder / name).mkdir()
    where = unit or folder
    where.mkdir(parents=True, exist_ok=True)
    for name in layout.UNIT_FOLDERS:
        (where / name).mkdir()
    lock(folder, "main", 1)
    return folder


def evaluator(
    run: Path, fs: FileSystem | None = None, *, job: str = "eval", number: int = 1, unit: Path | None = None
) -> Context:
    """The context of session ``number`` of an evaluator, whose lock is put."""
    fs = fs or LocalFileSystem()
    lock(run, job, number)
    session = HandSession(fs, str(run), job, number)
    return Context(session, Store(fs, str(unit or run), job, number))


def put_plain(run: Path, name: str, content: bytes = b"weights") -> None:
    """What a plain writer does: a temporary name, then a rename."""
    temp = run / "queue" / f"{name}.tmp"
    temp.write_bytes(content)
    os.replace(temp, run / "queue" / name)


def hand_over_now(hand_over: HandOver, path: Path, **options: Any) -> str:
    """Hand a file or folder over and wait until it is durable; raises what ended the thread that did it."""
    caught: list[threading.ExceptHookArgs] = []
    previous, threading.excepthook = threading.excepthook, caught.append
    try:
        name = hand_over.enqueue(path, **options)
        while not hand_over.drain(0.01):
            if caught:
                raise caught[0].exc_value or AssertionError(caught[0])
    finally:
        threading.excepthook = previous
    return name or ""


def outcomes(run: Path) -> dict[tuple[str, int], Outcome]:
    """All outcomes that stand, by entry and attempt."""
    found: dict[tuple[str, int], Outcome] = {}
    for path in sorted((run / "evals").iterdir()):
        parsed = layout.parse_outcome_name(path.name)
        if parsed:
            found[parsed] = Outcome.from_json(json.loads(path.read_text()))
    return found


def states(run: Path, entry: str) -> list[str]:
    """The states of an entry's outcomes, in order of attempts; each attempt must have one."""
    mine = {k: o.state for (name, k), o in outcomes(run).items() if name == entry}
    assert sorted(mine) == list(range(1, len(mine) + 1)), f"{entry}: attempts {sorted(mine)}"
    return [mine[k] for k in sorted(mine)]


def where(unit: Path) -> dict[str, list[str]]:
    """Every file or folder that stands as an entry in some place: relative folder -> names."""
    found: dict[str, list[str]] = {}
    for top in ("queue", "claimed", "retry", "best", "failed", "trash"):
        depth = {"claimed": 2, "retry": 1}.get(top, 0)
        folders = [unit / top] if (unit / top).is_dir() else []
        for _ in range(depth):
            folders = [inner for folder in folders for inner in sorted(folder.iterdir())]
        for folder in folders:
            names = sorted(p.name for p in folder.iterdir() if top == "trash" or is_entry(p.name))
            if names:
                found[str(folder.relative_to(unit))] = names
    return found
