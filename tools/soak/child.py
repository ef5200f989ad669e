"""One job of the soak: ``python -m tools.soak.child SETTINGS`` (JSON).

Every value that is logged and every checkpoint is unique, so that what is lost, counted twice or mixed up shows.
"""

from __future__ import annotations

import glob
import inspect
import json
import logging
import os
import random
import re
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from fsrun.core.errors import FsrunError, HeldError
from fsrun.disk import identity
from fsrun.run.entry import Skip
from fsrun.run.opening import open_live
from fsrun.run.run import Run, init

from .faults import Control, FaultyFS, ShiftedClock
from .journal import Journal, now

SAMPLE_EVERY = 0.01
PER_LIFE = 1_000_000
"""Life n logs values and steps from n million on."""


class Heard(logging.Handler):
    """Writes what fsrun warns of into the journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        self._journal("warned", text=record.getMessage(), error=str(record.exc_info[1]) if record.exc_info else None)


class Job:
    """A run that was opened here through faults, and what it does, in the journal."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.life: int = settings["life"]
        self.random = random.Random(settings["seed"])
        self.note = Journal(Path(settings["journals"]), f"{self.life:04d}.{settings['role']}")
        log = logging.getLogger("fsrun")
        log.addHandler(Heard(self.note))
        log.propagate = False
        control = Control(Path(settings["control"]))
        self._fs = FaultyFS(control, self.note, settings["seed"])
        self._clock = ShiftedClock(control, self.note)
        me = identity.own()
        identity.own = lambda: replace(me, host=settings["host"])  # others cannot prove this process dead

    def open(self) -> Run:
        s = self.settings
        usual = {name: p.default for name, p in inspect.signature(init).parameters.items()}
        arguments = usual | {
            "project": s["project"], "run_id": s["run"], "job": s["job"], "config": {"life": self.life},
            "root": s["root"], "handover": s.get("handover"), "timeout": s["timeout"], "ranks": "alone",
            "capture": False,
        }  # fmt: skip
        self.note("opening", job=s["job"], host=s["host"])
        self.live = open_live(arguments, self._fs, self._clock)
        run = Run(self.live.opened.where, self.live.job, self.live, strict=False)
        self.note("opened", job=s["job"], session=self.live.session.number, token=self.live.session.token)
        threading.Thread(target=self._sample, daemon=True).start()
        return run

    def _sample(self) -> None:
        """Say when the session was protected: the answer was given between ``since`` and the line's own time."""
        session, number = self.live.session, self.live.session.number
        while session.state != "closed":
            before, since = session.number, now()
            if session.is_protected() and session.number == before:
                self.note("held", session=before, since=since)
            if before != number:
                number = before
                self.note("continued", session=number)
            time.sleep(SAMPLE_EVERY)

    def log(self, run: Run, tag: str, step: int, value: float) -> bool:
        """Log one point; False where this process is the job no more."""
        if not run.active:
            self.note("quiet", state=self.live.session.state, message=self.live.session.message)
            return False
        run.add_scalar({tag: value}, step=step)
        self.note("logged", tag=tag, step=step, value=value)
        return True


def train(job: Job) -> None:
    """Go on from the newest checkpoint; hand over a checkpoint now and then; ``until``: how many steps, then finish."""
    run = job.open()
    folder = Path(job.settings["checkpoints"])
    saved = [int(found[1]) for p in glob.glob(f"{folder}/step_*.pt") if (found := re.search(r"step_(\d+)", p))]
    step, left = max(saved, default=0), job.settings.get("until")
    every = job.random.randint(8, 40)
    while left is None or left > 0:
        step += 1
        left = None if left is None else left - 1
        if not job.log(run, "train/loss", step, job.life * PER_LIFE + step):
            time.sleep(0.3)
            return
        if step % every == 0:
            save(job, run, folder, step)
        if job.random.random() < 0.01 and run.flush(5.0):
            job.note("flushed")
        time.sleep(job.random.random() * 0.03)
    run.finish_queue()
    run.finish()
    job.note("finished")


def save(job: Job, run: Run, folder: Path, step: int) -> None:
    value = job.life * PER_LIFE + step
    hidden, path = folder / f".{value}", folder / f"step_{step}.pt"
    hidden.write_bytes(f"{value}\n".encode() + bytes(job.random.choice([10, 20_000, 200_000])))
    os.rename(hidden, path)
    if job.random.random() < 0.3:
        job.note("handing", value=value)
        os.makedirs(folder / f".folder-{value}/sub")
        for part in ("weights", "sub/more"):
            os.link(path, folder / f".folder-{value}/{part}")
        os.rename(folder / f".folder-{value}", folder / f"checkpoint-{value}")
        path = folder / f"checkpoint-{value}"
    name = run.enqueue(path, step=step)
    job.note("handed", name=name, step=step, value=value)


def side(job: Job) -> None:
    """A side job that logs now and then."""
    run = job.open()
    step = job.life * PER_LIFE
    while job.log(run, "side/value", step, float(step)):
        step += 1
        time.sleep(job.random.random() * 0.4)


def evaluate(job: Job) -> None:
    """Evaluate what comes, with every kind of outcome."""
    run = job.open()
    options = job.random.choice([{}, {}, {"order": "newest"}])
    for entry in run.entries(best="max:acc", keep=2, poll=0.1, linger=job.settings["linger"], **options):
        with entry:
            job.note("claimed", name=entry.name, attempt=entry.attempt, session=entry.claim.session)
            value = content_of(entry.path)
            time.sleep(job.random.random() ** 3 * job.settings["work"])
            kind = job.random.random()
            if kind < 0.75:
                samples = [{"score": value}] * job.random.choice([0, 1, 5000])
                counts = entry.done({"acc": value}, samples=samples)
                job.note("settled", state="done", counts=counts, value=value, name=entry.name, attempt=entry.attempt)
            elif kind < 0.85:
                raise ArithmeticError("an evaluation that fails")
            elif kind < 0.9:
                raise Skip("left out")
            elif kind < 0.95:
                counts = entry.fail("said so")
                job.note("settled", state="failed", counts=counts, value=value, name=entry.name, attempt=entry.attempt)
            else:
                raise KeyboardInterrupt
    run.finish()
    job.note("finished")


def content_of(path: str) -> float:
    if os.path.isdir(path):
        path = f"{path}/sub/more"
    with open(path, "rb") as file:
        return float(file.readline())


def make(job: Job) -> None:
    """No job of the run: fills a folder that is watched, and the queue as a plain program would."""
    count = 0
    while True:
        count += 1
        value = job.life * PER_LIFE + count
        if job.random.random() < 0.6:
            name = f"w_{value}.ck"
            hidden, path = (f"{job.settings['watched']}/{n}" for n in (f".{name}", name))
        else:
            name = f"plain_{value}.pt"
            hidden, path = (f"{job.settings['unit']}/queue/{n}" for n in (f"{name}.tmp", name))
        try:
            with open(hidden, "wb") as file:
                file.write(f"{value}\n".encode() + bytes(job.random.choice([0, 100_000, 3_000_000])))
            os.rename(hidden, path)
        except FileNotFoundError:
            pass  # no run yet
        else:
            job.note("put", name=name, value=value)
        time.sleep(job.random.random() * 2.0)


ROLES = {"train": train, "side": side, "evaluate": evaluate, "make": make}


def main() -> int:
    job = Job(json.loads(sys.argv[1]))
    try:
        ROLES[job.settings["role"]](job)
    except KeyboardInterrupt:
        job.note("left")
        return 130
    except (HeldError, FsrunError, OSError) as error:
        job.note("refused", kind=type(error).__name__, error=str(error))
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
