"""The client that every other one is compared with: docs/clients.md's commands, obeyed by fsrun's own library.

    .venv/bin/python tools/conformance/python_client.py read RUN
    .venv/bin/python tools/conformance/python_client.py drive RUN

Does: one command a line to one call of the layers below ``fsrun.init``, which cannot be driven step by step. Leaves to
others: everything that is written (``fsrun.run``), what ``read`` says (``reading``).
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from fsrun.core import layout, retention
from fsrun.core.errors import FsrunError, HeldError, InvalidError, NotFoundError, UsageError
from fsrun.core.ids import MAIN
from fsrun.core.records import holder_of
from fsrun.core.sessions import look
from fsrun.core.states import MAX_FAILED, MAX_LOST
from fsrun.disk import identity
from fsrun.disk.clock import SystemClock
from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.store import Store
from fsrun.run import endings, places
from fsrun.run.chain import read_lock
from fsrun.run.entries import Entry, Evaluation
from fsrun.run.live import LiveRun
from fsrun.run.moves import Moves
from fsrun.run.opening import location_of, open_live
from fsrun.run.run import init

WAIT = 60.0
"""Seconds that a command may take whose work goes on in a thread."""
WORDS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class Refused(Exception):
    """The protocol forbids it; the text is the reason."""


class Looking(Evaluation):
    """An evaluator's loop that is made to look once, and never sleeps."""

    def _pause(self, longest: float) -> None:
        pass

    def look(self) -> Entry | None:
        """Claim what is next; None where there is nothing now, or where it has ended (``ended``)."""
        self._due = self._clock.monotonic()
        return self._step()

    @property
    def ended(self) -> bool:
        """Whether the evaluator may end."""
        return self._closed


class Driver:
    """One session in the hands of whoever writes the lines."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.live: LiveRun | None = None
        self.evaluation: Looking | None = None
        self.entry: Entry | None = None
        self.fs, self.clock = LocalFileSystem(), SystemClock()
        self.commands: dict[str, Callable[..., list[object]]] = {
            "beat": self.beat,
            "log": self.log,
            "enqueue": self.enqueue,
            "finish": self.finish,
            "best": self.best,
            "take": self.take,
            "outcome": self.outcome,
            "close": self.close,
        }

    # A line in, a line out.

    def obey(self, line: str) -> list[object]:
        """Obey one command; returns the fields of the answer."""
        name, *fields = line.split("\t")
        try:
            if name == "open":
                return self.open(*fields)
            if name not in self.commands:
                return ["error", f"no such command: {name}"]
            if self.live is None:
                return ["error", "no session is open"]
            if self._is_fenced(look=True):
                return ["fenced"]
            if self.live.session.state == "gone":
                return ["error", "the run folder is not there any more"]
            return self.commands[name](*fields)
        except Refused as error:
            return ["refused", error]
        except (FsrunError, OSError, TypeError, ValueError) as error:
            return ["fenced"] if self._is_fenced() else ["error", f"{type(error).__name__}: {error}"]

    def _is_fenced(self, look: bool = False) -> bool:
        """Whether a newer session is there. ``look``: find out now, by a beat, which costs one rename."""
        if self.live is None:
            return False
        if look:
            self.live.session.beat()
        return self.live.session.state == "fenced"

    @property
    def _open(self) -> LiveRun:
        if self.live is None:
            raise UsageError("no session is open")
        return self.live

    # The session.

    def open(self, job: str, timeout: str) -> list[object]:
        """``open JOB T``."""
        if self.live is not None:
            raise UsageError("a session was opened before")
        try:
            where = location_of(self.fs, self.folder)
            if job == MAIN:
                os.makedirs(self.folder, exist_ok=True)
            chosen: dict[str, Any] = {"project": where.project, "run_id": where.run, "job": job}
            chosen |= {"timeout": float(timeout), "strict": True, "ranks": "alone", "capture": False}
            self.live = open_live({**(init.__kwdefaults__ or {}), **chosen}, where=where)
        except HeldError:
            return ["held", *self._holder(job)]
        except (InvalidError, NotFoundError) as error:
            raise Refused(error) from None
        return ["opened", self.live.session.number]

    def _holder(self, job: str) -> tuple[str, int]:
        chain = look(self.fs.names(f"{self.folder}/{layout.JOBS}"), job)
        holder = holder_of(read_lock(Store(self.fs, self.folder, job, chain.highest), job, chain.highest))
        return holder.host or "unknown", holder.pid or 0

    def beat(self) -> list[object]:
        """``beat``: each command beats, so what is left is to say the number."""
        session = self._open.session
        chain = look(self.fs.names(f"{self.folder}/{layout.JOBS}"), session.job)
        return ["beaten", max(beat.count for beat in chain.beats_of(session.number, session.token))]

    def close(self, status: str, reason: str | None = None) -> list[object]:
        """``close STATUS [REASON]``."""
        live = self._open
        live.say(endings.Ending(status, reason))
        live.await_end(live.begin_end(endings.FINISHED, None))
        if live.session.state != "closed":
            return ["fenced"] if self._is_fenced() else ["error", "the end could not be written"]
        self.live = None
        return ["closed"]

    # The trainer.

    def log(self, step: str, time: str, *pairs: str) -> list[object]:
        """``log STEP TIME TAG VALUE [TAG VALUE]...``."""
        live = self._open
        live.writer.add(_values(pairs), int(step), time=float(time))
        if not live.writer.flush(WAIT):
            raise TimeoutError("the line is not durable yet")
        return ["fenced"] if self._is_fenced() else ["logged"]

    def enqueue(self, path: str, name: str, step: str) -> list[object]:
        """``enqueue PATH NAME STEP``."""
        handover = self._open.handover
        entry = handover.enqueue(path, step=int(step), name=name)
        if not handover.drain(WAIT) or entry is None:
            raise OSError(f"{path} is not handed over")
        return ["enqueued", entry]

    def finish(self) -> list[object]:
        """``finish``."""
        self._open.queue_finished = True
        if not self._open.handover.finish(WAIT):
            raise OSError("FINISHED is not written")
        return ["finished"]

    # The evaluator.

    def best(self, mode: str, tag: str, keep: str) -> list[object]:
        """``best MODE TAG KEEP``."""
        live = self._open
        try:
            wanted = retention.parse_rule(f"{mode}:{tag}", int(keep))
            Moves(live.session, live.unit, self.clock, identity.own()).set_rule(wanted)
        except UsageError as error:
            raise Refused(error) from None
        return ["ruled"]

    def take(self) -> list[object]:
        """``take``."""
        if self.entry is not None and not self.entry.settled:
            raise UsageError(f"{self.entry.name} is claimed and has no outcome yet")
        if self.evaluation is None or self.evaluation.ended:
            self.evaluation = self._loop()
        self.entry = self.evaluation.look()
        if self.entry is not None:
            return ["taken", self.entry.name, self.entry.attempt, self.entry.path]
        return ["over" if self.evaluation.ended else "none"]

    def _loop(self) -> Looking:
        from fsrun.core.order import linger_time, plan
        from fsrun.core.timing import LINGER

        live = self._open
        lasts = linger_time(LINGER, live.session.timing)
        loop = Looking(
            live, None, lambda waiting: plan(waiting, "oldest"), linger=lasts, once=False, poll=1.0, clock=self.clock
        )
        live._evaluations.add(loop)
        return loop

    def outcome(self, state: str, *fields: str) -> list[object]:
        """``outcome STATE ...``."""
        entry = self.entry
        if entry is None or entry.settled:
            raise UsageError("nothing is claimed")
        if state == "done":
            entry.done(_values(fields))
        elif state == "failed":
            entry.fail(" ".join(fields))
        elif state == "skipped":
            entry.skip(" ".join(fields))
        elif state == "returned":
            entry.give_back()
        else:
            raise UsageError(f"no such outcome: {state}")
        if not self._open.writer.flush(WAIT):
            raise TimeoutError("the points are not durable yet")
        return ["fenced"] if self._is_fenced() else ["moved", self._place(entry)]

    def _place(self, entry: Entry) -> str:
        """Where the outcome that stands sends the entry; perhaps it is not the one that was asked for."""
        runs = self._open.session.store
        before = [places.read_outcome(runs, entry.name, k) for k in range(1, entry.attempt + 1)]
        states = [outcome.state for outcome in before if outcome is not None]
        stands = states[-1] if states else "lost"
        if stands == "done":
            return "best" if layout.BEST_RULE in runs.names("") else "trash"
        if stands == "skipped":
            return "trash"
        given_up = {"failed": MAX_FAILED, "lost": MAX_LOST}.get(stands)
        return "failed" if given_up is not None and states.count(stands) >= given_up else "retry"


def _values(pairs: tuple[str, ...]) -> Mapping[str, int | float]:
    if len(pairs) % 2:
        raise UsageError("a tag has no value")
    return {tag: _number(text) for tag, text in zip(pairs[::2], pairs[1::2], strict=True)}


def _number(text: str) -> int | float:
    if text in WORDS:
        return WORDS[text]
    if NUMBER.fullmatch(text) is None:
        raise UsageError(f"{text!r} is no number")
    value: int | float = json.loads(text)
    return value


def drive(folder: str) -> int:
    """Obey the lines of standard input until ``close``; its end closes the session as failed."""
    driver = Driver(folder)
    for line in iter(sys.stdin.readline, ""):
        if not line.endswith("\n"):
            break  # What a driver that died wrote half is no command.
        command = line.removesuffix("\n")
        answer = driver.obey(command)
        fields = (" ".join(str(field).split("\n")).replace("\t", " ") for field in answer)
        sys.stdout.write("\t".join(fields) + "\n")  # One write, also where Python does not buffer: no answer is torn.
        sys.stdout.flush()
        if command.partition("\t")[0] == "close" and answer[0] in ("closed", "fenced"):
            return 0
    if driver.live is not None:
        driver.obey("close\tfailed\tinput ended")
    return 0


def main() -> int:
    """Read or drive."""
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
    os.environ["FSRUN_COMPACT"] = "0"  # Judged are the logs; a process of its own for each close would only last.
    if len(sys.argv) != 3 or sys.argv[1] not in ("read", "drive"):
        print("usage: python_client.py read|drive RUN", file=sys.stderr)
        return 2
    if sys.argv[1] == "drive":
        return drive(sys.argv[2])
    from reading import read_run

    print(json.dumps(read_run(sys.argv[2]), ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
