"""A daemon without threads, on a clock that is moved by hand: every look is made inside ``live``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from fsrun.core import codec, layout
from fsrun.core.records import Holder
from fsrun.daemon.apply import Hands
from fsrun.daemon.compacting import Compactor
from fsrun.daemon.journal import Journal
from fsrun.daemon.loop import Keeper
from fsrun.daemon.sweep import Sweeper
from fsrun.disk.fs import FileSystem, LocalFileSystem
from support.clock import FakeClock

ME = Holder(host="watcher", boot="b", pidns="1", pid=1)


class Asked(Compactor):
    """Remembers which runs were to be compacted."""

    def __init__(self) -> None:
        super().__init__(lambda *told: None)
        self.runs: list[tuple[str, bool]] = []

    def ask(self, run_dir: str, *, live: bool) -> None:
        self.runs.append((run_dir, live))


class Job:
    """A job of another host, whose beats are made by hand."""

    def __init__(self, run: Path, job: str = "main", session: int = 1, *, timeout: float = 30.0, **lock: Any) -> None:
        for folder in (*layout.RUN_FOLDERS, *layout.UNIT_FOLDERS):
            (run / folder).mkdir(parents=True, exist_ok=True)
        self.run, self.job, self.session, self.count = run, job, session, 0
        self.token = f"{job}{session:08d}"
        self.put("lock", token=self.token, timeout=timeout, **{"holder": {"host": "elsewhere", "pid": 7}, **lock})
        (run / "jobs" / layout.beat_name(job, session, self.token, 0)).touch()

    def put(self, kind: str, **fields: Any) -> None:
        record = {"protocol": "1.0", "job": self.job, "session": self.session} | fields
        (self.run / "jobs" / f"{self.job}.{self.session}.{kind}").write_bytes(codec.encode_record(record))

    def beat(self) -> None:
        name = f"{self.run}/jobs/{self.job}.{self.session}.{self.token}.beat."
        os.rename(f"{name}{self.count}", f"{name}{self.count + 1}")
        self.count += 1

    def end(self, status: str = "finished") -> None:
        self.put("end", status=status)
        for path in (self.run / "jobs").glob(f"{self.job}.{self.session}.*.beat.*"):
            path.unlink()

    @property
    def ended(self) -> dict[str, Any] | None:
        path = self.run / "jobs" / f"{self.job}.{self.session}.end"
        return json.loads(path.read_text()) if path.exists() else None


class HandDaemon:
    """The parts of a daemon over ``root``; ``lines`` are what it said."""

    def __init__(self, root: Path, fs: FileSystem | None = None, me: Holder = ME) -> None:
        root.mkdir(exist_ok=True)
        self.root = root
        self.clock = FakeClock()
        self.journal = Journal(str(root), self.clock, lambda line: None)
        self.compactor = Asked()
        fs = fs or LocalFileSystem()
        hands = Hands(fs, self.clock, str(root), me, self.compactor)
        self.keeper = Keeper(fs, self.clock, str(root), me=me, hands=hands, journal=self.journal)
        self.sweeper = Sweeper(self.keeper)
        self.events: list[tuple[str, str, dict[str, Any]]] = []
        self.journal._say = lambda what, path, facts: self.events.append((what, path, dict(facts)))  # type: ignore[method-assign,assignment]

    def sweep(self) -> None:
        """A full sweep, and every idle run that is due."""
        self.sweeper.sweep()
        while self.sweeper.tidy_next():
            pass

    def live(self, seconds: float, *jobs: Job, every: float = 5.0) -> None:
        """Let time pass; ``jobs`` beat meanwhile."""
        end = self.clock.monotonic() + seconds
        beat = self.clock.monotonic() + every
        while True:
            due = self.keeper.step()
            now = self.clock.monotonic()
            if due <= now:
                continue
            if now >= end:
                return
            self.clock.advance(min(due, end, beat) - now)
            if self.clock.monotonic() >= beat:
                beat += every
                for job in jobs:
                    job.beat()

    def did(self, what: str) -> list[str]:
        """The runs of which something was said."""
        return [path.removeprefix(f"{self.root}/") for said, path, _ in self.events if said == what]

    @property
    def problems(self) -> list[tuple[str, str]]:
        return [(p.removeprefix(f"{self.root}/"), f["message"]) for w, p, f in self.events if w == "problem"]
