"""A second process for the doctor: ``python -m fsrun.run.doctor_peer change``, or ``hold SETTINGS``.

``change`` makes the changes that its input asks for and says when it had made them; ``hold`` competes for a job and
says when it was protected. Both end by themselves when nobody listens.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fsrun.core.errors import FsrunError, HeldError
from fsrun.core.timing import Timing
from fsrun.disk import identity
from fsrun.disk.clock import SystemClock
from fsrun.disk.fs import LocalFileSystem
from fsrun.run.session import Session, open_session

_PAUSE = 0.005
_HOLD = 0.1
_LEAVE = 0.15
"""How often a holder stops to beat instead of closing its session, so that another one has to find it expired."""


def _say(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def change() -> None:
    """Make one change a line of the input."""
    fs, clock = LocalFileSystem(), SystemClock()
    for line in sys.stdin:
        order = json.loads(line)
        path = f"{order['folder']}/x"
        try:
            _await_folder(fs, clock, order["folder"], order["limit"])
            if order["do"] == "replaced file":
                fs.create(f"{path}.new", b"new\n")
                fs.rename(f"{path}.new", path)
            elif order["do"] == "grown file":
                log = fs.append(path)
                log.write(b"new\n")
                log.sync()
                log.close()
            else:
                fs.create(path, b"new\n")
            _say(at=clock.monotonic())
        except OSError as error:
            _say(error=error.strerror or str(error))


def _await_folder(fs: LocalFileSystem, clock: SystemClock, folder: str, limit: float) -> None:
    """Wait until a folder that was made through another mount shows here; what is tried then says if it does not."""
    parent, _, name = folder.rpartition("/")
    end = clock.monotonic() + limit
    while name not in fs.names(parent) and clock.monotonic() < end:
        clock.sleep(_PAUSE)


def hold(run: str, who: str, timeout: float, seconds: float) -> None:
    """Open the job, hold it for a moment, close it or leave it, again and again."""
    fs, clock = LocalFileSystem(), SystemClock()
    me = identity.own()
    me = replace(me, host=f"{me.host} {who}")  # so that the others have to wait for what they could prove
    end = clock.monotonic() + seconds
    while clock.monotonic() < end:
        try:
            session = open_session(fs, clock, run, "trial", timing=Timing(timeout), lock_fields={}, me=me)
        except HeldError:
            clock.sleep(_PAUSE)
            continue
        for number, first, last in _held(session, clock):
            _say(session=number, who=who, first=first, last=last)


def _held(session: Session, clock: SystemClock) -> Iterator[tuple[int, float, float]]:
    """For each session number held: the first and the last moment at which it certainly was protected."""
    session.start()
    left = random.random() < _LEAVE
    if left:
        session.stop_beating()
    moments: dict[int, tuple[float, float]] = {}
    end = clock.monotonic() + _HOLD * random.random()
    while clock.monotonic() < end or (left and session.is_protected()):
        number, before = session.number, clock.monotonic()
        if session.is_protected() and session.number == number:
            first, _ = moments.get(number, (clock.monotonic(), 0.0))
            moments[number] = first, max(first, before)
        clock.sleep(_PAUSE)
    if not left:
        session.close({"status": "finished"})
    for number, (first, last) in moments.items():
        yield number, first, last


def main() -> int:
    """Do what the arguments say."""
    try:
        if sys.argv[1] == "change":
            change()
        else:
            hold(**json.loads(sys.argv[2]))
    except (FsrunError, OSError) as error:
        _say(problem=str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
