"""What runs on the hosts of a bed: real programs that use fsrun, one a role; what they say is JSON, a line each.

python -m tests.shared.jobs ROLE ARGUMENTS...        (at the top of the checkout)
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import fsrun
from fsrun.core.errors import HeldError
from fsrun.core.timing import Timing
from fsrun.disk.clock import SystemClock
from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.store import Store
from fsrun.run.session import Session, open_session

CLOCK = SystemClock()


def say(**event: Any) -> None:
    # One write: forked children share the pipe.
    os.write(1, json.dumps(event).encode() + b"\n")


def watch(session: Session) -> None:
    """Say, from a thread, when work was protected (first and last moment a session), and each beat that succeeded."""
    beat = session.beat

    def told() -> bool:
        began = CLOCK.monotonic()
        good = beat()
        if good:
            say(beat=session.number, at=began)
        return good

    session.beat = told  # type: ignore[method-assign]

    def look() -> None:
        said = 0.0
        while session.state not in ("fenced", "closed"):
            number, at = session.number, CLOCK.monotonic()
            # What may still be started after the answer is started in the name of this moment.
            if session.is_protected() and session.number == number and at - said > 0.02:
                say(protected=number, at=at)
                said = at
            time.sleep(0.01)

    threading.Thread(target=look, daemon=True).start()


def opened(root: str, job: str, timeout: str, insist: bool) -> fsrun.Run:
    """Open the run; with ``insist`` again and again, until whoever holds it is gone."""
    while True:
        try:
            run = fsrun.init("p", run_id="r", job=job, root=root, timeout=float(timeout))
        except HeldError:
            if not insist:
                raise
            say(held=True, at=CLOCK.monotonic())
            continue
        say(opened=run._live.session.number, at=CLOCK.monotonic())
        return run


def trainer(root: str, timeout: str, first: str, *options: str) -> None:
    """Log a point every 20 ms, steps from FIRST on, until told ``finish``; ``insist`` to wait for the job."""
    run = opened(root, "main", timeout, "insist" in options)
    assert run._live is not None
    watch(run._live.session)
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    step = int(first)
    while not stop.wait(0.02) and run.active:
        run.add_scalar({"loss": step + 0.5}, step=step)
        say(logged=step, at=CLOCK.monotonic())
        step += 1
    if not run.active:
        say(fenced=True, at=CLOCK.monotonic())
        stop.wait(60)
    run.finish()
    say(finished=True, at=CLOCK.monotonic())


def contend(run: str, timeout: str, count: str) -> None:
    """COUNT processes; at each line of stdin (``close`` or ``kill``) all try to open main until they hold it or are
    refused; who holds it works for a while, then closes it, or is killed."""
    for line in sys.stdin:
        children = []
        for seed in range(int(count)):
            child = os.fork()
            if child == 0:
                _contender(run, float(timeout), line.strip(), seed)
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        say(over=True)


def _contender(run: str, timeout: float, ending: str, seed: int) -> None:
    try:
        session = open_session(
            LocalFileSystem(), CLOCK, run, "main", timing=Timing(timeout), lock_fields={"project": "p", "run": "r"}
        )
    except HeldError:
        say(refused=os.getpid())
        return
    say(opened=session.number, token=session.token, at=CLOCK.monotonic())
    watch(session)
    session.start()
    time.sleep(random.Random(os.getpid() + seed).uniform(0.5, 1.0))
    if ending == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    session.close({"status": "finished"})


def queue_trainer(root: str, timeout: str, count: str, *options: str) -> None:
    """Hand over checkpoints until COUNT stand in the run; what an earlier life handed over is not repeated."""
    run = opened(root, "main", timeout, "insist" in options)
    store = Path(run.path)
    own = store / "ckpt"
    own.mkdir(exist_ok=True)
    for step in range(int(count)):
        run.add_scalar({"loss": 1.0 / (step + 1)}, step=step)
        if f"step_{step}.pt.json" in os.listdir(store / "meta"):
            continue
        path = own / f"step_{step}.pt"
        path.write_text(str(step))
        say(handed=run.enqueue(path, step=step), at=CLOCK.monotonic())
        time.sleep(0.25)
    run.finish_queue()
    run.finish()
    say(finished=True)


def evaluator(root: str, job: str, timeout: str, work: str) -> None:
    """Evaluate what waits, WORK seconds an entry; the score is what the file holds."""
    run = opened(root, job, timeout, True)
    for entry in run.entries(best="max:eval/acc", keep=2, poll=0.2):
        with entry:
            say(began=entry.name, attempt=entry.attempt)
            score = float(Path(entry.path).read_text())
            time.sleep(float(work))
            entry.done({"eval/acc": score})
            say(done=entry.name)
    run.finish()
    say(finished=True)


def reader(root: str, seconds: str) -> None:
    """Follow the points of main, and say for each that was seen when it was."""
    until = CLOCK.monotonic() + float(seconds)
    run = fsrun.open(f"{root}/p/r")
    say(reading=True)
    for point in run.follow("loss", replay=False, poll=0.25, stop=lambda: CLOCK.monotonic() > until):
        say(seen=point.step, at=CLOCK.monotonic())


def peek(root: str) -> None:
    """Read everything that a person might, over and over; not beats, whose names say all (protocol.md 4.2)."""
    run = Path(root, "p", "r")
    say(peeking=True)
    while True:
        for path in [run / "run.json", *sorted((run / "jobs").glob("*.lock")), *sorted((run / "scalars").iterdir())]:
            try:
                path.read_bytes()
            except OSError:
                pass
        time.sleep(0.2)


def daemon(root: str) -> None:
    """The daemon over all runs of ROOT; its lines are JSON too."""
    from fsrun.cli import main

    main(["daemon", root, "--json"])


def end_watcher(root: str, name: str) -> None:
    """Say when NAME appears in jobs/."""
    say(watching=True)
    while name not in LocalFileSystem().names(f"{root}/p/r/jobs"):
        time.sleep(0.02)
    say(ended=name, at=CLOCK.monotonic())


def digest(folder: str) -> str:
    """A digest of the names and bytes below a folder."""
    total = hashlib.sha256()
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file():
            total.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def hand_over(root: str, size: str) -> None:
    """Hand over a folder of three files and a plain file; rewrite the file in place when told; finish when told."""
    run = opened(root, "main", "5", False)
    made = Path(run.path, "ckpt", "checkpoint-10")
    (made / "optimizer").mkdir(parents=True)
    for name in ("model.bin", "config.json", "optimizer/state.bin"):
        (made / name).write_bytes(random.Random(name).randbytes(int(size)))
    plain = made.parent / "step_20.pt"
    plain.write_bytes(random.Random(20).randbytes(int(size)))
    say(handed=run.enqueue(made, step=10), digest=digest(str(made)))
    say(handed=run.enqueue(plain, step=20))
    sys.stdin.readline()
    with plain.open("r+b") as file:
        file.write(random.Random(21).randbytes(int(size)))
    say(rewritten=True)
    sys.stdin.readline()
    run.finish_queue()
    run.finish()
    say(finished=True)


def inspect(root: str) -> None:
    """Evaluate by digest; before each entry but the first wait for a line."""
    run = opened(root, "eval", "5", False)
    for entry in run.entries(poll=0.2):
        with entry:
            say(began=entry.name, digest=digest(entry.path) if Path(entry.path).is_dir() else None)
            sys.stdin.readline()
            say(stands=entry.done({"ok": 1.0}))
    run.finish()
    say(finished=True)


class Gated(LocalFileSystem):
    """Waits for a line before it links; what a client asks for first it knows by then, so the link is the next call."""

    def link(self, source: str, target: str) -> None:
        self.names(source.rpartition("/")[0])
        os.access(source, os.R_OK | os.W_OK)
        say(linking=True)
        sys.stdin.readline()
        super().link(source, target)


def put(folder: str, name: str, text: str) -> None:
    """One put-if-absent, stopped just before its link; says whether what stands is its own."""
    store = Store(Gated(), folder, "main", 1)
    say(put=store.put_if_absent("", name, text.encode() + b"\n"))


ROLES = {
    "trainer": trainer,
    "contend": contend,
    "queue-trainer": queue_trainer,
    "evaluator": evaluator,
    "reader": reader,
    "peek": peek,
    "daemon": daemon,
    "end-watcher": end_watcher,
    "hand-over": hand_over,
    "inspect": inspect,
    "put": put,
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
