"""A process that holds a job and does what it is told, line by line; what it has to say is JSON, a line each.

    python -m support.holder RUN_DIR TIMEOUT        (with tests/ on the path)

Commands: ``look`` (says number, first, state, protected), ``close STATUS``, ``exec`` (starts itself anew in this
process), ``exit`` (os._exit), ``work SECONDS`` (says when it was protected, and as which session).
"""

from __future__ import annotations

import json
import os
import sys
import time

from fsrun.core.errors import HeldError
from fsrun.core.timing import Timing
from fsrun.disk.clock import SystemClock
from fsrun.disk.fs import LocalFileSystem
from fsrun.run.session import Session, open_session


def say(event: str, **more: object) -> None:
    print(json.dumps({"event": event, "pid": os.getpid(), **more}), flush=True)


class Speaker:
    """A session listener that says what it hears."""

    def acknowledged(self) -> dict[str, int]:
        return {}

    def continued(self, old: int, new: int) -> None:
        say("continued", old=old, new=new)

    def fenced(self, message: str) -> None:
        say("fenced", message=message)

    def moved(self, message: str) -> None:
        say("moved", message=message)


def work(session: Session, seconds: float) -> None:
    """Say for each session held the first and the last moment at which work was protected."""
    clock = SystemClock()
    until = clock.monotonic() + seconds
    while clock.monotonic() < until and session.state != "fenced":
        before, number = clock.monotonic(), session.number
        if session.is_protected() and session.number == number:
            say("protected", session=number, at=before)
        time.sleep(0.005)


def main(run_dir: str, timeout: str) -> int:
    began = time.monotonic()
    try:
        session = open_session(
            LocalFileSystem(), SystemClock(), run_dir, "main", timing=Timing(float(timeout)), lock_fields={}
        )
    except HeldError as error:
        say("held", message=str(error), after=time.monotonic() - began)
        return 3
    session.listener = Speaker()
    session.start()
    say("open", session=session.number, after=time.monotonic() - began)
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        if command == "look":
            protected = session.is_protected()
            say("look", session=session.number, first=session.first, state=session.state, protected=protected)
        elif command == "close":
            end = session.close({"status": argument})
            say("closed", session=session.number, status=end.status if end else None)
            return 0
        elif command == "exec":
            os.execv(sys.executable, [sys.executable, "-m", "support.holder", run_dir, timeout])
        elif command == "exit":
            os._exit(7)
        elif command == "work":
            work(session, float(argument))
            say("worked")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
