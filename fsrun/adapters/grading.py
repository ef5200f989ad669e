"""Grades answers: parts thinking from them, and runs graders that may hang in processes that can be killed.

Does: which grader a name means, processes and their limits, a bounded number of answers under way. Leaves to others:
what is right (``graders``), the numbers of a set (``core.tally``).

``exact``, ``numeric`` and ``choice`` run in this process: they are ours, import nothing, and take time linear in the
answer, at most a second for a megabyte (long answers in a thread). So do comparisons of ``math`` that texts and numbers
decide, which are most. Its others and ``FILE.py:NAME`` run in processes, each in a session of its own, each taking one
answer at a time.

A grader's limit is meant for the grader alone: time in which its process was ready to run but others had the processor
is not counted (Linux says how much that was), so a loaded machine changes no score; a grader that waits, for the
network say, spends its own time. Beyond ``PATIENCE`` times the limit it is over in any case. Where the system does not
tell, processor time is counted. A grader that is over its limit is killed and replaced, and its answer is ungraded:
"took longer than 10 s". So is one that ``math`` computes on for more than ``COMPUTING`` seconds of processor time:
mostly towers of powers, but a loaded machine gets less done in a second, and that must cost nobody a point.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import orjson

from fsrun.adapters import child
from fsrun.adapters.graders import NAMES, Grade, choice, exact, mathematics, numeric
from fsrun.adapters.graders.final import UNFINISHED, part
from fsrun.adapters.graders.worker import SIZE
from fsrun.core.errors import UsageError

PATIENCE: Final = 5
COMPUTING: Final = 2.5
LONGEST: Final = 4 << 20
"""Characters of an answer that are graded: its last ones."""
_IN_LINE: Final = 1 << 16
"""Answers up to this length are graded at once, longer ones in a thread, so that requests go on meanwhile."""
_LOADING: Final = 600.0
_LOOK: Final = 0.1
"""Seconds between two looks at a process that may be over its limit."""
_LOOK_UP: Final = 1.0
"""Seconds between two looks whether it is there at all."""
_MATH_MEMORY: Final = 4 << 30
_CHUNK: Final = 1 << 16

_AtOnce = Callable[[str, Any, Mapping[str, Any]], Grade | None]
_AT_ONCE: Final[dict[str, _AtOnce]] = {
    "exact": exact.grade,
    "numeric": numeric.grade,
    "choice": choice.grade,
    "math": mathematics.at_once,
}
"""What grades in this process; None: another has to."""


class GraderError(Exception):
    """A grader that cannot be loaded, or gave no grade; the text is the reason."""

    def __init__(self, reason: str, traceback: str = "") -> None:
        super().__init__(reason)
        self.traceback = traceback


class Grading:
    """Grades with ``exact``, ``numeric``, ``math``, ``choice`` or ``FILE.py:NAME``; ``limit`` seconds for an answer.

    After a crash of this process: its grading processes notice their closed pipes (or, on Linux, get SIGKILL) and end.
    """

    def __init__(self, spec: str, limit: float = 10.0, processes: int = 2, *, sha256: str | None = None) -> None:
        """``sha256``: of the grader's file; a process that finds another one there does not load it."""
        if spec not in NAMES and ":" not in spec:
            raise UsageError(f"no grader {spec!r}: {', '.join(NAMES)} or FILE.py:NAME")
        if limit <= 0 or processes < 1:
            raise UsageError(f"a grader needs a limit above 0 and at least one process, not {limit:g} and {processes}")
        self.spec = spec
        self.limit = limit
        self._processes = processes
        self._at_once = _AT_ONCE.get(spec)
        has_processes = spec == "math" or self._at_once is None
        self._workers = [_Worker(_absolute(spec), limit, sha256) for _ in range(processes)] if has_processes else []
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        # Threads that stay: Linux ends a process with the thread that started it.
        self._pool = ThreadPoolExecutor(processes, "fsrun-grading") if has_processes else None
        self._gate: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    def check(self) -> None:
        """Load the grader now; raises ``UsageError`` where it cannot be, before anything was asked of a model."""
        if self._pool is None:
            return
        try:
            self._pool.submit(self._load).result()
        except GraderError as error:
            refused = UsageError(f"grader {self.spec}: {error}")
            refused.details = error.traceback
            raise refused from error

    async def grade(self, text: str, label: Any, columns: Mapping[str, Any], *, thinking: bool = False) -> Grade:
        """Grade one answer; waits while all processes are busy. ``thinking``: the prompt ended inside thinking."""
        parted = part(text[-LONGEST:], thinking=thinking and len(text) <= LONGEST)
        if self._at_once is None:
            grade = None
        elif len(text) <= _IN_LINE:
            grade = self._here(parted.answer, label, columns)
        else:
            grade = await asyncio.to_thread(self._here, parted.answer, label, columns)
        if grade is None:
            grade = await self._there(parted.answer, label, columns)
        if not parted.finished and grade.score is not None and not grade.correct and grade.reason is None:
            return Grade(grade.score, grade.correct, grade.extracted, UNFINISHED)
        return grade

    def close(self) -> None:
        """End the processes. Answers that are being graded become ungraded."""
        for worker in self._workers:
            worker.end()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.stop()

    def _load(self) -> None:
        worker = self._idle.get()
        try:
            worker.start()
        finally:
            self._idle.put(worker)

    def _here(self, answer: str, label: Any, columns: Mapping[str, Any]) -> Grade | None:
        assert self._at_once is not None
        try:
            return self._at_once(answer, label, columns)
        except Exception as error:  # noqa: BLE001 - one answer that it does not take is no end of an evaluation
            return Grade(None, reason=f"the grader raised {type(error).__name__}: {error}"[:500])

    async def _there(self, answer: str, label: Any, columns: Mapping[str, Any]) -> Grade:
        loop = asyncio.get_running_loop()
        if self._gate is None or self._gate[0] is not loop:
            self._gate = loop, asyncio.Semaphore(self._processes)
        async with self._gate[1]:
            return await loop.run_in_executor(
                self._pool, self._elsewhere, answer, label, {} if self.spec == "math" else columns
            )

    def _elsewhere(self, answer: str, label: Any, columns: Mapping[str, Any]) -> Grade:
        try:
            request = pickle.dumps((answer, label, dict(columns)), pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001 - a row may hold anything
            return Grade(None, reason=f"the row cannot be handed to the grader: {type(error).__name__}: {error}"[:500])
        worker = self._idle.get()
        try:
            return worker.ask(request)
        except GraderError as error:
            return Grade(None, reason=str(error))
        finally:
            self._idle.put(worker)


def _absolute(spec: str) -> str:
    """The same grader from any working directory: its process may be replaced after this one has changed its own."""
    source, _, name = spec.rpartition(":")
    return f"{os.path.abspath(os.path.expanduser(source))}:{name}" if source.endswith(".py") else spec


class _Worker:
    """One process that grades, started where it is needed, replaced when it was killed. Used by a thread at a time."""

    def __init__(self, spec: str, limit: float, sha256: str | None = None) -> None:
        self._spec = spec
        self._sha256 = sha256 or ""
        self._limit = limit
        self._computing = COMPUTING if spec == "math" else None
        self._process: subprocess.Popen[bytes] | None = None
        self._write = self._read = -1
        self._over = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the process, unless it runs, and load the grader; raises ``GraderError``."""
        if self._process is not None and self._process.poll() is None:
            return
        self.stop()
        theirs_read, self._write = os.pipe()
        self._read, theirs_write = os.pipe()
        os.set_blocking(self._write, False)
        memory = _MATH_MEMORY if self._spec == "math" else 0
        numbers = [str(number) for number in (theirs_read, theirs_write, memory)]
        try:
            with self._lock:
                if self._over:
                    raise GraderError("grading was ended")
                self._process = child.start(
                    [sys.executable, "-P", "-m", "fsrun.adapters.graders.worker", self._spec, *numbers, self._sha256],
                    pass_fds=(theirs_read, theirs_write),
                )
        except OSError as error:
            raise GraderError(f"its process cannot be started: {error}") from error
        finally:
            os.close(theirs_read)
            os.close(theirs_write)
        answer = self._exchange(b"", _LOADING, None)
        if not answer.get("ready"):
            self.stop()
            raise GraderError(
                answer.get("reason") or "cannot be loaded", (answer.get("error") or {}).get("traceback") or ""
            )

    def ask(self, request: bytes) -> Grade:
        """Grade one answer; raises ``GraderError`` where there is no grade."""
        self.start()
        answer = self._exchange(len(request).to_bytes(SIZE, "little") + request, self._limit, self._computing)
        score = answer.get("score")
        return Grade(
            None if score is None else float(score),
            answer.get("correct"),
            answer.get("extracted"),
            answer.get("reason"),
        )

    def end(self) -> None:
        """Kill the process, for good; from another thread than that which asks."""
        with self._lock:
            self._over = True
            if self._process is not None:
                child.stop(self._process, grace=0)

    def stop(self) -> int:
        """End the process and what it started; returns its exit status."""
        with self._lock:
            process, self._process = self._process, None
        status = 0 if process is None else child.stop(process, grace=0)
        for descriptor in (self._write, self._read):
            if descriptor >= 0:
                os.close(descriptor)
        self._write = self._read = -1
        return status

    def _exchange(self, request: bytes, limit: float, computing: float | None) -> dict[str, Any]:
        """Send a request and read its answer, or kill the process that has used up its time."""
        process = self._process
        assert process is not None
        clock = Clock(process.pid)
        left = memoryview(request)
        data = bytearray()
        while not data.endswith(b"\n"):
            first = limit if computing is None else min(limit, computing)
            readable, writable = self._wait(min(_LOOK_UP, max(_LOOK, first - clock.wall())), bool(left))
            if readable:
                chunk = os.read(self._read, _CHUNK)
                if not chunk:
                    raise GraderError(f"the grader's process ended: {child.ending(self.stop())}")
                data += chunk
            elif writable:
                try:
                    left = left[os.write(self._write, left[:_CHUNK]) :]
                except BrokenPipeError:
                    left = left[:0]  # it is gone: the read that follows says how it ended
            elif process.poll() is not None:
                # What it started may hold its pipe open for longer.
                raise GraderError(f"the grader's process ended: {child.ending(self.stop())}")
            elif computing is not None and clock.computed() > computing:
                self.stop()
                raise GraderError(f"not compared within {computing:g} s of computing")
            elif clock.is_over(limit):
                self.stop()
                raise GraderError(f"took longer than {limit:g} s")
        try:
            answer = orjson.loads(data)
        except orjson.JSONDecodeError:
            answer = None
        if not isinstance(answer, dict):
            self.stop()
            raise GraderError("the grader's process answered with something else than a grade")
        return answer

    def _wait(self, seconds: float, writing: bool) -> tuple[bool, bool]:
        """Wait until its pipes can be read or written; both false after so many seconds."""
        # Not by select: it takes no descriptor above 1023, and requests under way have many.
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        if writing:
            poll.register(self._write, select.POLLOUT)
        ready = {descriptor for descriptor, _ in poll.poll(seconds * 1000)}
        return self._read in ready, self._write in ready


class Clock:
    """Tells how much time a process has spent since this object was made."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._start = time.monotonic()
        self._computed = processor_time(pid) or 0.0
        self._waited = waited(pid)

    def wall(self) -> float:
        """Seconds that passed."""
        return time.monotonic() - self._start

    def computed(self) -> float:
        """Seconds of processor time."""
        return (processor_time(self._pid) or 0.0) - self._computed

    def is_over(self, limit: float) -> bool:
        """Whether it spent more than ``limit`` seconds of its own."""
        wall, now = self.wall(), waited(self._pid)
        if self._waited is None or now is None:
            return spent(wall, None, self.computed(), limit)
        return spent(wall, now - self._waited, 0.0, limit)


def spent(wall: float, waiting: float | None, computed: float, limit: float) -> bool:
    """Whether a limit is used up, after ``waiting`` seconds without a processor (None: not known)."""
    own = computed if waiting is None else wall - max(0.0, waiting)
    return own > limit or wall > PATIENCE * limit


def processor_time(pid: int) -> float | None:
    """Seconds of processor time of a process and of its ended children; None where it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as source:
            fields = source.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def waited(pid: int) -> float | None:
    """Seconds in which a process, with what it started, was ready to run but did not; None where nothing tells."""
    import psutil

    total = _run_delay(pid)
    if total is None:
        return None
    with contextlib.suppress(psutil.Error, OSError):
        for process in psutil.Process(pid).children(recursive=True):
            total += _run_delay(process.pid) or 0.0
    return total


def _run_delay(pid: int) -> float | None:
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as source:
            return int(source.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
