"""Evaluation by a user's Python function, in a child process that lives for many entries.

A crash, an out-of-memory kill or ``os._exit`` of the function is an outcome of its entry; the next gets a new child.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import orjson

from fsrun.adapters import child
from fsrun.adapters.evaluation import EvaluationError, Request, Result, SkipEvaluation
from fsrun.core import codec
from fsrun.core.errors import UsageError

_CHUNK = 1 << 16
_LOADING = 600.0
"""Seconds that the function's module may take to load where an entry has a limit, at least."""


class FunctionEvaluator:
    """Runs ``FILE.py:NAME``. ``limit`` is the longest that one entry may take, in seconds (None: no limit).

    After a crash of this process: the child notices its closed pipe (or, on Linux, gets SIGKILL) and ends.
    """

    def __init__(self, spec: str, *, limit: float | None = None) -> None:
        if ":" not in spec:
            raise UsageError(f"--function {spec}: write FILE.py:NAME")
        self.spec = spec
        self.limit = limit
        self._process: subprocess.Popen[bytes] | None = None
        self._write = self._read = -1

    def check(self) -> None:
        """Load the function now; raises ``UsageError`` when it cannot be, so that nothing is claimed for nothing."""
        try:
            self._start()
        except EvaluationError as error:
            refused = UsageError(f"--function: {error.reason}")
            refused.details = str((error.error or {}).get("traceback") or "")
            raise refused from error

    def evaluate(self, request: Request) -> Result:
        """Return the function's scores."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._start()
        if self.limit is not None:
            request = replace(request, time_limit=self.limit, deadline=time.time() + self.limit)
        self._send(request.to_json())
        answer = self._receive(self.limit)
        if "skip" in answer:
            raise SkipEvaluation(answer["skip"])
        if "scores" not in answer:
            raise EvaluationError(answer.get("reason") or "failed", answer.get("error"))
        scores = {tag: codec.WORDS.get(value, value) for tag, value in answer["scores"].items()}
        return Result(scores, answer.get("details") or {}, samples=answer.get("samples"))

    def close(self) -> None:
        """End the child and everything that it started."""
        for descriptor in (self._write, self._read):
            if descriptor >= 0:
                os.close(descriptor)
        self._write = self._read = -1
        if self._process is not None:
            child.stop(self._process, grace=0)
            self._process = None

    def _start(self) -> None:
        theirs_read, self._write = os.pipe()
        self._read, theirs_write = os.pipe()
        try:
            self._process = child.start(
                [sys.executable, "-P", "-m", "fsrun.adapters.worker", self.spec, str(theirs_read), str(theirs_write)],
                pass_fds=(theirs_read, theirs_write),
            )
        finally:
            os.close(theirs_read)
            os.close(theirs_write)
        # The limit is for an entry; what the module loads, such as a model, takes its own time.
        answer = self._receive(None if self.limit is None else max(self.limit, _LOADING))
        if not answer.get("ready"):
            self.close()
            raise EvaluationError(answer.get("reason") or "the function cannot be loaded", answer.get("error"))

    def _send(self, message: dict[str, Any]) -> None:
        data = memoryview(codec.encode_line(message))
        try:
            while data:
                data = data[os.write(self._write, data) :]
        except BrokenPipeError:
            return  # the child is gone: the read that follows says how it ended

    def _receive(self, limit: float | None) -> dict[str, Any]:
        """Read one answer line; the end of the child or of its time is an ``EvaluationError``."""
        deadline = None if limit is None else time.monotonic() + limit
        data = bytearray()
        while not data.endswith(b"\n"):
            left = None if deadline is None else deadline - time.monotonic()
            if (left is not None and left <= 0) or not select.select([self._read], [], [], left)[0]:
                self._stop()
                raise EvaluationError(f"took longer than the limit of {limit:g} s")
            chunk = os.read(self._read, _CHUNK)
            if not chunk:
                raise EvaluationError(f"the evaluation's process ended: {child.ending(self._stop())}")
            data += chunk
        answer = orjson.loads(data)
        return answer if isinstance(answer, dict) else {}

    def _stop(self) -> int:
        process, self._process = self._process, None
        status = child.stop(process, grace=0 if process.poll() is not None else child.GRACE) if process else 0
        self.close()
        return status
