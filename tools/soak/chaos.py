"""One round of the soak: the jobs of one run, random faults upon them, and then peace until all is drained."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .journal import Journal, now

REPO = Path(__file__).resolve().parents[2]
SLOTS = ("train", "evaluate eval", "evaluate eval2", "side analysis", "make", "watch", "daemon")
DRAIN = 90.0
"""Seconds of peace after which everything must have ended: mostly for machines that are busy with other things."""


class Violation(Exception):
    """Something that must not be: the message explains it."""


@dataclass
class Child:
    slot: str
    life: int
    process: subprocess.Popen[bytes]
    log: Path
    stopped_until: float = 0.0


@dataclass
class Place:
    """Where a round has what: ``roots``, one folder through one or two mounts; all else is local."""

    roots: list[str]
    local: Path
    run: str
    project: str = "soak"

    def path(self) -> Path:
        return Path(self.roots[0]) / self.project / self.run


@dataclass
class Round:
    place: Place
    rng: random.Random
    timeout: float
    kinds: Counter[str]
    children: list[Child] = field(default_factory=list)

    def __post_init__(self) -> None:
        local = self.place.local
        self.journals, self.control = local / "journals", local / "control.json"
        self.watched = local / "watched"
        for folder in (self.journals, self.watched, local / "spill", local / "runtime"):
            folder.mkdir(parents=True)
        # Checkpoints that stand on the run's file system are linked, others are copied.
        self.checkpoints = Path(self.rng.choice([self.place.roots[0], str(local)])) / f"checkpoints-{self.place.run}"
        self.checkpoints.mkdir()
        elsewhere = self.rng.random() < 0.4
        self.handover = str(local / "elsewhere") if elsewhere else None
        self.unit = f"{self.handover}/soak/{self.place.run}" if elsewhere else str(self.place.path())
        self.note = Journal(self.journals, "chaos")
        self.lives = 0
        self.due = dict.fromkeys(SLOTS, 0.0)
        self.say_faults({})

    # Children.

    def start(self, slot: str, **more: Any) -> Child:
        role, _, job = slot.partition(" ")
        self.lives += 1
        root = self.rng.choice(self.place.roots)
        log = self.journals / f"{self.lives:04d}.{role}.log"
        if role == "watch":
            run = f"{root}/{self.place.project}/{self.place.run}"
            words = ["-m", "fsrun", "enqueue", run, "--watch", str(self.watched), "--glob", "*.ck"]
            words += ["--poll", "0.2", "--settle", "0.3", "--linger", str(DRAIN), "--job", "watch"]
        elif role == "daemon":
            words = ["-m", "fsrun", "daemon", root, "--json"]
        else:
            words = ["-m", "tools.soak.child", json.dumps(self._settings(role, job or "main", root) | more)]
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=REPO,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        child = Child(slot, self.lives, process, log)
        self.children.append(child)
        self.note("started", life=child.life, slot=slot, pid=process.pid)
        self.kinds[f"started: {role}"] += 1
        return child

    def _settings(self, role: str, job: str, root: str) -> dict[str, Any]:
        return {
            "role": role, "job": job, "life": self.lives, "seed": self.rng.getrandbits(32), "root": root,
            "project": self.place.project, "run": self.place.run, "timeout": self.timeout, "handover":
            self.handover if job == "main" else None, "unit": self.unit, "journals": str(self.journals),
            "control": str(self.control), "checkpoints": str(self.checkpoints), "watched": str(self.watched),
            "host": self.rng.choice(["host-a", "host-b", "host-c"]), "linger": DRAIN, "work": 1.5,
        }  # fmt: skip

    def _environment(self) -> dict[str, str]:
        foreign = ("FSRUN_", "SLURM", "OMPI", "PMI", "NOTIFY")
        kept = {k: v for k, v in os.environ.items() if k == "FSRUN_CI_MARK" or not k.startswith(foreign)}
        return kept | {
            "PYTHONPATH": str(REPO), "FSRUN_SPILL": str(self.place.local / "spill"), "FSRUN_TIMEOUT": str(self.timeout),
            "XDG_RUNTIME_DIR": str(self.place.local / "runtime"), "FSRUN_CAPTURE": "0", "FSRUN_COMPACT": "0",
        }  # fmt: skip

    def signal(self, child: Child, number: int) -> None:
        self.note("signal", life=child.life, number=number)
        self.kinds[signal.Signals(number).name] += 1
        child.process.send_signal(number)

    def reap(self) -> None:
        """Collect who has ended; a slot is filled again after a while. A traceback is a violation."""
        for child in list(self.children):
            code = child.process.poll()
            if code is None:
                continue
            self.children.remove(child)
            self.note("ended", life=child.life, code=code)
            self.due[child.slot] = now() + self.rng.random() * 2 * self.timeout
            said = child.log.read_text(errors="replace")
            if "Traceback (most recent call last)" in said or "fault in fsrun itself" in said:
                raise Violation(
                    f"{child.slot} (life {child.life}) ended by an error of its own, code {code}:\n{said[-3000:]}"
                )

    def close(self) -> None:
        """End all children, whatever happened."""
        for child in self.children:
            with suppress(OSError):
                child.process.kill()
        for child in self.children:
            child.process.wait()

    # Faults.

    def say_faults(self, said: dict[str, Any]) -> None:
        hidden = self.control.with_suffix(".new")
        hidden.write_text(json.dumps(said))
        hidden.replace(self.control)
        self.note("control", said=said)

    def trouble(self) -> None:
        """One random fault."""
        t, rng = self.timeout, self.rng
        kind = rng.choices(
            ["kill", "stop", "stop long", "term", "full", "broken", "lost", "slow", "shift", "rival"],
            [5, 2, 5, 2, 2, 2, 4, 2, 1, 2],
        )[0]
        running = [c for c in self.children if not c.stopped_until]
        if kind in ("kill", "stop", "stop long", "term") and running:
            child = rng.choice(running)
            if kind == "kill":
                self.signal(child, signal.SIGKILL)
            elif kind == "term":
                self.signal(child, signal.SIGTERM)
            else:
                self.signal(child, signal.SIGSTOP)
                span = rng.uniform(0.1, 0.8) if kind == "stop" else rng.uniform(1.2, 7)
                child.stopped_until = now() + span * t
                if kind == "stop long":
                    self.due[child.slot] = min(self.due[child.slot], now())
        elif kind == "rival":
            self.start(rng.choice(["train", "evaluate eval", "evaluate eval2", "side analysis", "watch"]))
        else:
            said: dict[str, Any] = {"until": now() + rng.uniform(0.3, 3) * t}
            if kind in ("full", "broken", "lost"):
                said[kind] = rng.choice([0.05, 0.3, 1.0 if kind == "full" else 0.6])
            elif kind == "slow":
                said[kind] = [rng.choice([0.1, 0.5]), rng.choice([0.1, 0.4]) * t]
            if rng.random() < 0.3 or kind == "shift":
                said["shift"] = rng.choice([-3600, 3600, -5, 5, 40e6, 500e6])
            self.say_faults(said)

    def disturb(self, seconds: float) -> None:
        """Random faults for a while."""
        end, next_trouble = now() + seconds, now() + 2.0
        while now() < end:
            self.reap()
            for child in self.children:
                if child.stopped_until and now() >= child.stopped_until:
                    child.stopped_until = 0.0
                    self.signal(child, signal.SIGCONT)
            for slot in SLOTS:
                lively = any(c.slot == slot and not c.stopped_until for c in self.children)
                if not lively and now() >= self.due[slot] and (slot not in ("watch",) or self._exists()):
                    self.due[slot] = now() + 1.0
                    self.start(slot)
            if now() >= next_trouble:
                next_trouble = now() + self.rng.expovariate(1 / (0.6 * self.timeout))
                self.trouble()
            time.sleep(0.03)

    def _exists(self) -> bool:
        jobs = self.place.path() / "jobs"
        return jobs.is_dir() and any(name.startswith("main.") and name.endswith(".lock") for name in os.listdir(jobs))

    # Peace.

    def settle(self) -> None:
        """No more faults; the training ends as it should, the queue is emptied, everyone leaves by himself."""
        self.say_faults({})
        for child in self.children:
            if child.stopped_until:
                self.signal(child, signal.SIGCONT)
                child.stopped_until = 0.0
        self._end("train", "make")
        self._until("a trainer that finishes", lambda: self._once("train", until=25))
        for child in [c for c in self.children if c.slot == "side analysis"]:
            self.signal(child, signal.SIGTERM)
        self._await("watch")
        self._until("a watcher that finds nothing left", lambda: self._once("watch"))
        if not any(c.slot == "evaluate eval" for c in self.children):
            self.start("evaluate eval")
        self._await("evaluate eval", "evaluate eval2", "side analysis")
        self._until("an evaluator that finds nothing left", lambda: self._once("evaluate eval"))
        self._end("daemon")

    def _once(self, slot: str, **more: Any) -> bool:
        child = self.start(slot, **more)
        self._await_child(child)
        return child.process.returncode == 0

    def _until(self, what: str, done: Any) -> None:
        end = now() + DRAIN
        while not done():
            if now() > end:
                raise Violation(f"no faults any more, and yet {what} did not come to its end within {DRAIN:.0f} s")

    def _end(self, *slots: str) -> None:
        gone = [c for c in self.children if c.slot in slots]
        for child in gone:
            self.signal(child, signal.SIGTERM)
        for child in gone:
            self._await_child(child)

    def _await(self, *slots: str) -> None:
        for child in [c for c in self.children if c.slot in slots]:
            self._await_child(child)

    def _await_child(self, child: Child) -> None:
        try:
            child.process.wait(DRAIN)
        except subprocess.TimeoutExpired:
            said = child.log.read_text(errors="replace")[-1500:]
            raise Violation(
                f"{child.slot} (life {child.life}) did not end within {DRAIN:.0f} s, without any more faults:\n{said}"
            ) from None
        self.reap()

    def repair(self) -> None:
        """Bring home what was spilled, and have the run checked by the command that people use."""
        self._command("check", "--fix", "--yes")
        code, said = self._command("check")
        if code:
            raise Violation(f"fsrun check says that the run is not valid (code {code}):\n{said}")

    def _command(self, *words: str) -> tuple[int, str]:
        command, *options = words
        done = subprocess.run(
            [sys.executable, "-m", "fsrun", command, str(self.place.path()), *options],
            cwd=REPO, env=self._environment(), capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr
