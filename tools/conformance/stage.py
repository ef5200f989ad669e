"""The place of one scenario: a folder of its own, the processes that it starts, and what is judged when it is over."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import folder
import invariants
import orders
import vectors
from driven import LIMIT, MARK, Driven, Failure, expect
from hand import Hand
from watching import Watcher

from fsrun.core.errors import NotFoundError
from fsrun.run.check import check_run

PYTHON = Path(__file__).with_name("python_client.py")


@dataclass(frozen=True, slots=True)
class Check:
    """One named thing that a client has to do."""

    name: str
    about: str
    run: Callable[[Stage], None]


CHECKS: dict[str, Check] = {}


def scenario(name: str) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Register a scenario; its docstring says what it is about."""

    def register(function: Callable[[Stage], None]) -> Callable[[Stage], None]:
        assert name not in CHECKS, name
        CHECKS[name] = Check(name, (function.__doc__ or "").strip().split("\n")[0], function)
        return function

    return register


class NoReader(Failure):
    """The client says that it has no ``read``."""


class Stage:
    """What a scenario works with; ``settle`` judges, ``clear`` ends what is left."""

    def __init__(self, place: Path, client: Sequence[str], against: Sequence[str], seed: str) -> None:
        self.place = place
        self.run = place / "runs" / "p" / "r"
        self.hand = Hand(self.run)
        self.random = random.Random(seed)
        self.killed = False
        """Whether a process was killed: what it left half done is nobody's fault."""
        self.unfit = False
        """Whether the run is not one that can be judged as a whole: it was moved, or is of another protocol."""
        self.handed_over: set[str] = set()
        self.words, self._against = list(client), list(against)
        self._driven: list[Driven] = []
        self._seen: dict[Path, bytes] = {}
        self._watcher = Watcher(place, self.run)

    # Processes.

    def client(self) -> Driven:
        """Start the client that is judged."""
        return self._start(self.words)

    def other(self) -> Driven:
        """Start the client of the other side."""
        return self._start(self._against)

    def _start(self, words: Sequence[str]) -> Driven:
        driven = Driven(words, self.run, self.place / "errors", self.environ, self.note)
        self._driven.append(driven)
        return driven

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables of what is started: nothing is written outside of the scenario's folder."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("FSRUN_")}
        return kept | {"FSRUN_SPILL": str(self.place / "spill"), MARK: str(self.place)}

    def opened(self, job: str = "main", timeout: float = 30, *, session: int = 1) -> Driven:
        """A client that has opened a job."""
        client = self.client()
        client.must(["open", job, f"{timeout:g}"], "opened", session, rule="4.1", limit=LIMIT + 5 * timeout)
        return client

    def kill(self, driven: Driven) -> None:
        """SIGKILL a client."""
        self.killed = True
        driven.kill()

    def read(self) -> dict[str, Any]:
        """What the client says of the run; what fsrun says where the client has no ``read`` yet. Raises ``Failure``."""
        try:
            return read(self.words, self.run, self.environ)
        except NoReader:
            return read([sys.executable, str(PYTHON)], self.run, self.environ)

    def agree(self) -> None:
        """The client reads what fsrun's own library reads. Raises ``Failure``."""
        ours = read([sys.executable, str(PYTHON)], self.run, self.environ)
        differences = vectors.differences(ours, read(self.words, self.run, self.environ))
        expect(not differences, f"read differs from fsrun's: {'; '.join(differences[:5])}", "8")

    def fsrun(self, *words: str) -> str:
        """Run a command of fsrun; returns what it printed."""
        command = [sys.executable, "-m", "fsrun", *words]
        done = subprocess.run(command, env=dict(self.environ), capture_output=True, text=True, timeout=LIMIT)
        return done.stdout + done.stderr

    # Doing and watching.

    def file(self, name: str, content: bytes) -> Path:
        """A checkpoint of a trainer, outside of the run."""
        path = self.place / "ckpt" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # Written over in place, it would change what was handed over by a link.
        path.write_bytes(content)
        return path

    def enqueue(self, driven: Driven, path: Path, name: str, step: int, expected: str | None = None) -> str:
        """Hand over; returns the entry's name."""
        entry = driven.must(["enqueue", path, name, step], "enqueued", *([expected] if expected else []), rule="5.1")[1]
        self.handed_over.add(entry)
        return entry

    def take(self, driven: Driven, *, limit: float = LIMIT) -> tuple[str, int, Path]:
        """Look until something is claimed; returns entry, attempt and path, where its file stands."""
        until = time.monotonic() + limit
        while (answer := driven.ask("take"))[0] != "taken":
            shown = " ".join(answer)
            expect(answer == ["none"], f"take was answered {shown!r} although an entry waits", "5.8")
            expect(time.monotonic() < until, f"nothing was taken in {limit:g} s although an entry waits", "5.2")
            time.sleep(0.1)
        expect(len(answer) == 4, f"take was answered {answer}: no entry, attempt and path")
        entry, attempt, path = answer[1], int(answer[2]), Path(answer[3])
        expect(
            path.is_absolute() and path.exists(), f"take says that {entry} stands at {path}, which it does not", "5.2"
        )
        return entry, attempt, path

    def over(self, driven: Driven, limit: float = 30.0) -> None:
        """Look until the evaluator may end."""
        until = time.monotonic() + limit
        while (answer := driven.ask("take")) != ["over"]:
            expect(answer == ["none"], f"take was answered {' '.join(answer)!r} although nothing waits", "5.8")
            expect(
                time.monotonic() < until, f"take does not say over in {limit:g} s although an evaluator may end", "5.8"
            )
            time.sleep(0.1)

    def wait(self, what: str, condition: Callable[[], object], rule: str = "", limit: float = LIMIT) -> None:
        """Wait until something is so. Raises ``Failure``."""
        until = time.monotonic() + limit
        while not condition():
            expect(time.monotonic() < until, f"{what} is not so after {limit:g} s", rule)
            time.sleep(0.02)

    def note(self) -> None:
        """Remember the records that stand now: none of them may change; and what has come and gone."""
        self._watcher.look()
        for path in folder.immutable(self.run):
            if path not in self._seen:
                try:
                    data = path.read_bytes()
                except FileNotFoundError:
                    continue
                if data.endswith(b"\n"):
                    self._seen[path] = data

    # The end.

    def forget(self) -> None:
        """What comes is about another run."""
        self._seen.clear()
        self.handed_over.clear()
        self._watcher.forget()

    def settle(self) -> None:
        """Judge what is left. Raises ``Failure``."""
        if self.unfit:
            return
        self.note()
        invariants.unchanged(self.run, self._seen)
        orders.judge(self.run, self._watcher)
        invariants.check(self.run, self.handed_over, killed=self.killed)
        try:
            found = [finding for finding in check_run(str(self.run)) if finding.severity == "error"]
        except NotFoundError:
            expect(not folder.job_files(self.run, kind="lock"), "fsrun check finds no run here", "4.1", self.run)
            return
        for finding in found:
            line = f":{finding.line}" if finding.line else ""
            raise Failure(f"fsrun check: {finding.file}{line} {finding.message}", finding.rule, self.run)

    def clear(self) -> None:
        """End every process that was started."""
        for driven in self._driven:
            driven.clear()
        self._watcher.close()


def read(words: Sequence[str], run: Path, environ: Mapping[str, str], *, alone: bool = False) -> dict[str, Any]:
    """The object that a client's ``read`` prints; ``alone``: nobody else is at the run. Raises ``Failure``."""
    import json

    still = folder.tree if alone else _still
    before = still(run)
    try:
        done = subprocess.run([*words, "read", str(run)], env=dict(environ), capture_output=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise Failure(f"read was not done in {LIMIT:g} s") from None
    said = done.stderr.decode("utf-8", "replace").strip()[-600:]
    if done.returncode == 2 and not done.stdout:
        raise NoReader(f"the client has no read: it ended with code 2 and printed nothing; it said: {said}")
    expect(done.returncode == 0, f"read ended with code {done.returncode}; it said: {said}")
    after = still(run)
    changed = sorted(name for name in before | after if before.get(name, 0) != after.get(name, 0))
    expect(not changed, f"read has changed the run folder: {changed[:5]}", "8.1", run)
    try:
        value = json.loads(done.stdout)
    except ValueError as error:
        at = getattr(error, "pos", 0)
        around = done.stdout.decode("utf-8", "replace")[max(0, at - 60) : at + 60]
        raise Failure(f"read printed no JSON ({error}): around that place {around!r}; it said: {said}") from None
    expect(isinstance(value, dict), "read printed no JSON object")
    found: dict[str, Any] = value
    return found


def _still(run: Path) -> dict[str, bytes | str | None]:
    """What stands in a run, but for what holders change by themselves: views, and the numbers of beats."""
    found = folder.tree(run)
    views = {name for name in found if name == "run.json" or (name.startswith("jobs/") and name.endswith(".json"))}
    kept = {name: content for name, content in found.items() if name not in views}
    return {re.sub(r"(\.beat)\.[0-9]+$", r"\1", name): content for name, content in kept.items()}
