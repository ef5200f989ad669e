"""Builds data.parquet in a child process, one run after the other.

In a process of its own, since reading and writing Parquet takes memory that a process which runs for months should not
keep, and C++ threads that must not be at work when it ends. The child lowers its priority, and ends when it is idle.

``python -m fsrun.daemon.compacting`` is that child: a line of JSON a run in, a line of JSON a run out.
"""

from __future__ import annotations

import json
import os
import queue
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO

from fsrun.run.latch import Inbox

IDLE = 20.0
"""Seconds without work after which the child is let go."""
Told = Callable[[str, bool, str | None, str | None], None]
"""``(run folder, live, path of the data.parquet or None, error or None)``"""


class Compactor:
    """Asks a child process for a data.parquet; each answer is given to ``told`` from a thread of its own."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._wanted: Inbox[tuple[str, bool]] = Inbox()
        self._lock = threading.Lock()
        self._asked: set[str] = set()
        self._child: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self.at_work: str | None = None
        """The run that is being compacted now."""

    @property
    def waiting(self) -> int:
        """How many runs wait, or are at work."""
        return len(self._asked)

    def ask(self, run_dir: str, *, live: bool) -> None:
        """Have a run compacted; asked twice, it is done once."""
        with self._lock:  # workers ask, several of them
            if run_dir in self._asked:
                return
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="fsrun-compactor", daemon=True)
                thread.start()
                self._thread = thread
            self._asked.add(run_dir)
        self._wanted.put((run_dir, live))

    def kill(self) -> None:
        """End the child at once, whatever it does. After a crash: the old data.parquet, and perhaps a temporary."""
        child = self._child
        if child is not None and child.poll() is None:
            child.kill()

    def _work(self) -> None:
        while True:
            try:
                run_dir, live = self._wanted.take(IDLE if self._child is not None else None)
            except queue.Empty:
                self._let_go()
                continue
            self.at_work = run_dir
            path, error = self._one(run_dir, live)
            self.at_work = None
            with self._lock:
                self._asked.discard(run_dir)
            self._told(run_dir, live, path, error)

    def _one(self, run_dir: str, live: bool) -> tuple[str | None, str | None]:
        try:
            child = self._child = self._child if self._child is not None else _start()
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(json.dumps({"run": run_dir, "live": live}) + "\n")
            child.stdin.flush()
            answer = child.stdout.readline()
        except OSError as error:
            self._let_go()
            return None, f"the process that compacts is gone: {error}"
        if not answer:
            code = self._let_go()
            return None, f"the process that compacts ended with {code}"
        said = json.loads(answer)
        return said["path"], said["error"]

    def _let_go(self) -> int | None:
        child, self._child = self._child, None
        if child is None:
            return None
        for pipe in (child.stdin, child.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:
                continue
        return child.wait()


def _start() -> subprocess.Popen[str]:
    # -P and "/": nothing of the folder in which the daemon was started is imported, and none is kept busy.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def serve(asked: IO[str], answers: IO[str]) -> None:
    """Compact each run that is asked for, until there is no more to read."""
    from fsrun.run.compact import compact, compact_if_last

    for line in asked:
        wanted = json.loads(line)
        path, error = None, None
        try:
            path = (compact if wanted["live"] else compact_if_last)(wanted["run"])
        except Exception as caught:  # noqa: BLE001 - whatever is wrong with one run, the next one has its turn
            error = f"{type(caught).__name__}: {caught}" if not isinstance(caught, OSError) else str(caught)
        answers.write(json.dumps({"path": path, "error": error}) + "\n")
        answers.flush()


def _end_with_parent() -> None:
    """End when the daemon is gone, also in the middle of a run: its end of the pipe closes."""
    poller = select.poll()
    poller.register(sys.stdin.fileno(), 0)
    poller.poll()
    os._exit(1)


if __name__ == "__main__":
    os.nice(10)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    serve(sys.stdin, sys.stdout)
    sys.stdout.flush()
    os._exit(0)
