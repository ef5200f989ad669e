"""What somebody else wrote: sessions of another host, entries of a plain writer, outcomes, all made by plain files.

So a scenario needs no second implementation to have a past, or a peer that does just what it says.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from pathlib import Path
from typing import Any

FOLDERS = ("jobs", "scalars", "evals", "files", "queue", "meta", "claimed", "retry", "best", "failed", "trash")
NODE7 = {
    "host": "node7",
    "boot": "0b6e1d0f-6f3c-4f0e-9a55-4a4c0c2f7b1e",
    "pidns": "4026531836",
    "pid": 4711,
    "ticks": 81,
}
FOR_EVER = 1000.0
"""A timeout of sessions that nobody has to wait for."""


class Hand:
    """Writes into one run folder."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.tokens: dict[tuple[str, int], str] = {}

    def make(self) -> Hand:
        """Make the folders of a run."""
        for name in FOLDERS:
            (self.run / name).mkdir(parents=True, exist_ok=True)
        return self

    def write(self, name: str, value: object) -> None:
        """Write a file of the run in one step; an object as a record."""
        path = self.run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(value, bytes):
            value = json.dumps(value).encode() + b"\n"
        temp = path.parent / f".hand-{secrets.token_hex(4)}"
        temp.write_bytes(value)
        os.replace(temp, path)

    def open(self, job: str = "main", session: int = 1, timeout: float = FOR_EVER, **more: Any) -> str:
        """Beat 0, then the lock; returns the token."""
        token = self.tokens[job, session] = secrets.token_hex(8)
        self.write(f"jobs/{job}.{session}.{token}.beat.0", b"")
        record = {"protocol": "1.0", "job": job, "session": session, "token": token, "timeout": timeout}
        record |= {"holder": NODE7, "fence": None if session == 1 else {}, "continues": False}
        self.write(f"jobs/{job}.{session}.lock", record | more)
        return token

    def beat(self, job: str, session: int, count: int) -> None:
        """Rename beat ``count`` to the next."""
        name = f"jobs/{job}.{session}.{self.tokens[job, session]}.beat."
        os.rename(self.run / f"{name}{count}", self.run / f"{name}{count + 1}")

    def end(self, job: str = "main", session: int = 1, status: str = "finished", **more: Any) -> None:
        """The end, then the beat goes."""
        record = {"protocol": "1.0", "job": job, "session": session, "status": status, "reason": None}
        self.write(f"jobs/{job}.{session}.end", record | {"token": self.tokens.get((job, session), "")} | more)
        for path in (self.run / "jobs").glob(f"{job}.{session}.*.beat.*"):
            path.unlink()

    def close(self, job: str, session: int) -> None:
        """Close somebody's session as expired, in the order of 4.4; its beat is taken where it stands by then."""
        while True:
            beats = sorted((self.run / "jobs").glob(f"{job}.{session}.*.beat.*"))
            try:
                taken = [beat.rename(str(beat).replace(".beat.", ".taken.")) for beat in beats]
                break
            except FileNotFoundError:
                continue  # It beat just then.
        record = {"protocol": "1.0", "job": job, "session": session, "status": "crashed", "reason": "expired"}
        self.write(f"jobs/{job}.{session}.end", record | {"token": "", "found_by": NODE7})
        for path in taken:
            path.unlink(missing_ok=True)

    def finished_run(self) -> Hand:
        """A run whose main has ended well: evaluators have nothing to wait for."""
        self.make()
        self.open()
        self.end()
        return self

    def entry(self, name: str, content: bytes = b"weights") -> None:
        """What a plain writer does: a temporary name, then one rename."""
        temp = self.run / "queue" / f"{name}.tmp"
        temp.write_bytes(content)
        os.rename(temp, self.run / "queue" / name)

    def meta(self, name: str, **more: Any) -> None:
        """The meta of an entry, as a trainer puts it."""
        record = {"protocol": "1.0", "entry": name, "kind": "file", "main_session": 1, "order": time.time_ns()}
        self.write(f"meta/{name}.json", record | more)

    def claim(self, job: str, session: int, attempt: int, name: str, content: bytes = b"weights") -> None:
        """An entry that another evaluator has claimed."""
        path = self.run / "claimed" / f"{job}.{session}" / str(attempt) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def outcome(self, name: str, attempt: int, state: str, job: str, session: int, **more: Any) -> None:
        """An outcome about a claim of that session."""
        record = {"protocol": "1.0", "entry": name, "attempt": attempt, "state": state, "job": job, "session": session}
        self.write(f"evals/{name}.{attempt}.json", record | {"time": time.time()} | more)

    def finish(self, session: int = 1) -> None:
        """FINISHED, as the main session of that number writes it."""
        self.write("queue/FINISHED", {"protocol": "1.0", "main_session": session})
