"""Run folders made by hand, from literals: what stands in them is what the test says, byte for byte.

    run = build.run(tmp_path)
    run.lock("main", 1)
    run.log("main", 1, build.line(0, loss=0.5), build.line(1, loss=0.4))
    run.lock("main", 2, fence={"scalars/main.1.jsonl": 60})
    run.end("main", 2)
    run.outcome("step_1.pt", 1, step=1, scores={"eval/acc": 0.9})

Nothing is published properly: files are just written. No fsrun code builds the names, so that tests notice a change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TIME = 1_764_447_005.0


def line(
    step: Any, values: Mapping[str, Any] | None = None, *, entry: str | None = None, time: Any = None, **more: Any
) -> bytes:
    """The bytes of one scalar line. ``values`` for tags that are no Python names; ``time``: ``TIME + step`` if None."""
    record: dict[str, Any] = {"step": step, "time": TIME + step if time is None else time}
    record |= {**(values or {}), **more}
    if entry is not None:
        record["entry"] = entry
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def lines(steps: Any, tag: str = "loss", *, scale: float = 1.0, entry: str | None = None) -> bytes:
    """A line a step with the value ``step * scale`` under one tag."""
    return b"".join(line(step, {tag: step * scale}, entry=entry) for step in steps)


class RunFolder:
    """A run folder that grows as it is told to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("jobs", "scalars", "evals", "files", "queue"):
            (path / name).mkdir(parents=True, exist_ok=True)

    def __str__(self) -> str:
        return str(self.path)

    def write(self, path: str, data: bytes | str | Mapping[str, Any]) -> Path:
        """Write a file of the run; a mapping as a record."""
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(data, Mapping):
            data = json.dumps(data, indent=2) + "\n"
        file.write_bytes(data.encode() if isinstance(data, str) else data)
        return file

    def lock(
        self, job: str, session: int, *, fence: Mapping[str, int] | None = None, continues: bool = False, **more: Any
    ) -> None:
        """Session ``session`` was opened. ``fence`` None with a session past 1: the whole of what its log holds now."""
        if fence is None and session > 1:
            before = self.path / "scalars" / f"{job}.{session - 1}.jsonl"
            fence = {f"scalars/{before.name}": before.stat().st_size} if before.exists() else {}
        record = {
            "protocol": "1.0",
            "job": job,
            "session": session,
            "token": f"{session:08d}token",
            "timeout": 30.0,
            "opened": "2026-11-29T23:00:00.000Z",
            "holder": {"host": "elsewhere", "pid": 1},
            "continues": continues,
            "fence": fence,
            "project": "speech",
            "run": self.path.name,
        }
        self.write(f"jobs/{job}.{session}.lock", record | more)

    def beat(self, job: str, session: int, count: int = 0) -> None:
        """The beat of an open session."""
        self.write(f"jobs/{job}.{session}.{session:08d}token.beat.{count}", b"")

    def end(self, job: str, session: int, status: str = "finished", **more: Any) -> None:
        """Session ``session`` was closed."""
        record = {
            "protocol": "1.0",
            "job": job,
            "session": session,
            "status": status,
            "ended": "2026-11-29T23:30:00.000Z",
        }
        self.write(f"jobs/{job}.{session}.end", record | more)

    def session(self, job: str, session: int, *parts: bytes, ended: str | None = "finished", **lock: Any) -> None:
        """A session with its log; ``ended`` None: still open."""
        self.lock(job, session, **lock)
        if parts:
            self.log(job, session, *parts)
        if ended is not None:
            self.end(job, session, ended)

    def log(self, job: str, session: int, *parts: bytes, piece: int | None = None) -> int:
        """Append to a session's log, or to a piece of its spill; returns its size."""
        name = f"{job}.{session}.jsonl" if piece is None else f"{job}.{session}.s{piece}.jsonl"
        path = self.path / "scalars" / name
        with path.open("ab") as file:
            file.write(b"".join(parts))
        return path.stat().st_size

    def outcome(
        self,
        entry: str,
        attempt: int = 1,
        *,
        step: int | None,
        scores: Mapping[str, Any] | None = None,
        state: str = "done",
        main_session: int | None = 1,
        order: int = 0,
        job: str = "eval",
        session: int = 1,
        **more: Any,
    ) -> None:
        """How an attempt ended."""
        record = {
            "protocol": "1.0",
            "entry": entry,
            "attempt": attempt,
            "state": state,
            "step": step,
            "main_session": main_session,
            "order": order,
            "scores": dict(scores or {}),
            "time": TIME + (step or 0),
            "job": job,
            "session": session,
        }
        self.write(f"evals/{entry}.{attempt}.json", record | more)

    def tree(self) -> dict[str, bytes]:
        """Every file and its bytes, by path in the run folder."""
        return {str(p.relative_to(self.path)): p.read_bytes() for p in sorted(self.path.rglob("*")) if p.is_file()}


def run(root: Path, name: str = "big", project: str = "speech") -> RunFolder:
    """An empty run folder below a root."""
    return RunFolder(root / project / name)
