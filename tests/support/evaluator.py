"""A real evaluator process for tests: ``python -m tests.support.evaluator RUN JOB TIMEOUT WORK [SAMPLES]``.

It takes WORK seconds an entry, whose score is what the file holds; an entry that holds ``poison`` kills it. So many
SAMPLES are kept, each with the entry as its prompt. It prints ``open N``, ``began NAME``, ``done NAME`` and ``end``.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from fsrun.core.timing import Timing
from fsrun.disk.clock import SystemClock
from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.store import Store
from fsrun.run.entries import entries
from fsrun.run.session import open_session
from tests.support.queue import Context


def say(*words: object) -> None:
    print(*words, flush=True)


def main(run: str, job: str, timeout: float, work: float, samples: int) -> None:
    if samples:
        import fsrun.run.samples  # noqa: F401 - which takes longer than an evaluation
    fs, clock = LocalFileSystem(), SystemClock()
    session = open_session(fs, clock, run, job, timing=Timing(timeout), lock_fields={})
    session.start()
    say("open", session.number)
    context = Context(session, Store(fs, run, job, session.number))
    evaluation = entries(context, best="max:acc", keep=2, poll=0.05)
    for entry in evaluation:
        with entry:
            say("began", entry.name)
            with open(entry.path, "rb") as file:
                content = file.read()
            if content == b"poison":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(work)
            if entry.done({"acc": float(content)}, samples=[{"prompt": entry.name}] * samples):
                say("done", entry.name)
    evaluation.close()
    session.close({"status": "finished"})
    say("end")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]), int("".join(sys.argv[5:]) or 0))
