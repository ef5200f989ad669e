"""Evaluation by a user's command: ``CMD {path} {out}``, one process an entry.

``{path} {out} {step} {entry} {attempt} {run} {limit}`` stand for shell-quoted values; the same are in the environment
as FSRUN_PATH, FSRUN_OUT, ... The command writes its scores to ``{out}`` as one JSON object; a list of objects under
``samples`` in it is kept as its samples. Exit code 0 is done (or skipped, where it wrote ``{"skip": "why"}``), any
other is failed, with the last lines of its standard error kept.
"""

from __future__ import annotations

import os
import shlex
import string
import subprocess
import sys
import tempfile
import threading
from collections import deque
from typing import IO

import orjson

from fsrun.adapters import child
from fsrun.adapters.evaluation import EvaluationError, Request, Result, SkipEvaluation, result_of
from fsrun.core import codec
from fsrun.core.codec import WORDS
from fsrun.core.errors import UsageError

NAMES = ("path", "out", "step", "entry", "attempt", "run", "limit")
_TAIL_LINES = 50
_MAX_OUT = 256 << 20


class CommandEvaluator:
    """Runs a shell command for each entry. ``limit`` is the longest that one may take, in seconds (None: no limit).

    After a crash of this process: the command runs on to its end, and what it wrote to ``{out}`` is not read.
    """

    def __init__(self, command: str, *, limit: float | None = None) -> None:
        self.command = command
        self.limit = limit
        self._process: subprocess.Popen[bytes] | None = None
        used = {name for _, name, _, _ in _fields(command) if name is not None}
        if unknown := used - set(NAMES):
            known = " ".join(f"{{{name}}}" for name in NAMES)
            raise UsageError(
                f"--command: {{{sorted(unknown)[0]}}} is unknown; there are {known} (a brace is written twice)"
            )
        if "path" not in used:
            raise UsageError("--command: {path} must stand in the command, so that it knows what to evaluate")

    def check(self) -> None:
        """Do nothing: what a command needs it says itself."""

    def evaluate(self, request: Request) -> Result:
        """Run the command and read what it wrote."""
        with tempfile.TemporaryDirectory(prefix="fsrun-eval-") as folder:
            out = os.path.join(folder, "out.json")
            values = {
                "path": request.path,
                "out": out,
                "step": "" if request.step is None else str(request.step),
                "entry": request.entry,
                "attempt": str(request.attempt),
                "run": request.run,
                "limit": "" if self.limit is None else f"{self.limit:g}",
            }
            line = self.command.format(**{name: shlex.quote(value) for name, value in values.items()})
            self._run(line, {f"FSRUN_{name.upper()}": value for name, value in values.items()})
            return _read_out(out)

    def close(self) -> None:
        """End a command that still runs."""
        if self._process is not None:
            child.stop(self._process, grace=0)
            self._process = None

    def _run(self, line: str, environment: dict[str, str]) -> None:
        process = child.start(line, shell=True, environment=environment, stderr=subprocess.PIPE)
        self._process = process
        tail: deque[str] = deque(maxlen=_TAIL_LINES)
        assert process.stderr is not None
        reader = threading.Thread(target=_forward, args=(process.stderr, tail), daemon=True)
        reader.start()
        try:
            status = process.wait(self.limit)
        except subprocess.TimeoutExpired:
            child.stop(process)
            raise EvaluationError(f"took longer than the limit of {self.limit:g} s", _error(tail)) from None
        finally:
            # What the command left behind in its session must not hold the entry open, nor this reader.
            child.stop(process, grace=0)
            reader.join(1.0)
            self._process = None
        if status:
            raise EvaluationError(f"the command ended with {child.ending(status)}", _error(tail))


def _fields(command: str) -> list[tuple[str, str | None, str | None, str | None]]:
    try:
        return list(string.Formatter().parse(command))
    except ValueError as error:
        raise UsageError(f"--command: {error} (a brace of the shell is written twice)") from error


def _forward(source: IO[bytes], tail: deque[str]) -> None:
    """Pass a command's standard error on, and keep its end."""
    for line in iter(lambda: source.readline(1 << 16), b""):
        text = line.decode("utf-8", "replace")
        tail.append(text)
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            continue


def _error(tail: deque[str]) -> dict[str, str]:
    return {"type": "Command", "message": tail[-1].strip()[:2000] if tail else "", "traceback": "".join(tail)}


def _read_out(path: str) -> Result:
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_OUT + 1)
    except FileNotFoundError:
        raise EvaluationError("the command wrote nothing to {out}") from None
    except OSError as error:
        raise EvaluationError(f"what the command wrote to {{out}} cannot be read: {error.strerror}") from None
    if len(data) > _MAX_OUT:
        raise EvaluationError(f"the command wrote more than {_MAX_OUT >> 20} MiB to {{out}}")
    try:
        value = codec.loads(data)
    except orjson.JSONDecodeError as error:
        raise EvaluationError(f"what the command wrote to {{out}} is no JSON: {error}") from None
    if isinstance(value, dict) and set(value) == {"skip"}:
        raise SkipEvaluation(str(value["skip"]))
    if isinstance(value, dict):
        value = {k: WORDS.get(v, v) if isinstance(v, str) else v for k, v in value.items()}
    return result_of(value)
