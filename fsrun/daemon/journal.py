"""What the daemon says: one line an event, for people or as JSON; each trouble once. Keeps counts for the status.

Lines are written by a thread of their own, so that a pipe which nobody reads stops nothing else.
"""

from __future__ import annotations

import json
import queue
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from fsrun.core.records import rfc3339
from fsrun.disk.clock import Clock

MAX_PROBLEMS = 1000
"""Troubles that are remembered; beyond that they are counted."""


class Journal:
    """Takes events from any thread. ``write`` gets one finished line at a time, from one thread."""

    def __init__(self, root: str, clock: Clock, write: Callable[[str], None], *, as_json: bool = False) -> None:
        self._root = root
        self._clock = clock
        self._write = write
        self._as_json = as_json
        self._lines: queue.SimpleQueue[str | threading.Event] = queue.SimpleQueue()
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self.did: Counter[str] = Counter()
        self.problems: dict[tuple[str, str], str] = {}
        """(path, what is wrong) -> when it was first seen."""
        self.untold = 0
        """Troubles past ``MAX_PROBLEMS``."""

    def event(self, what: str, run_dir: str, **facts: Any) -> None:
        """Something was done."""
        self.did[what] += 1
        self._say(what, run_dir, facts)

    def note(self, text: str) -> None:
        """Something to know that is no trouble."""
        self._say("note", self._root, {"message": text})

    def problem(self, path: str, what: str) -> None:
        """Something could not be done; said once until it is ``solved``."""
        with self._mutex:
            if (path, what) in self.problems:
                return
            if len(self.problems) >= MAX_PROBLEMS:
                self.untold += 1
                return
            self.problems[path, what] = rfc3339(self._clock.now_ns())
        self._say("problem", path, {"message": what})

    def solved(self, path: str, what: str = "") -> None:
        """What was wrong with a path (all, or what begins so) is so no longer; if it comes again it is said again."""
        if not self.problems:
            return
        with self._mutex:
            for key in [key for key in self.problems if key[0] == path and key[1].startswith(what)]:
                del self.problems[key]

    def flush(self, timeout: float) -> None:
        """Wait until what was said is written, or for ``timeout`` seconds."""
        if self._thread is not None:
            done = threading.Event()
            self._lines.put(done)
            done.wait(timeout)

    def _say(self, what: str, path: str, facts: Mapping[str, Any]) -> None:
        time = rfc3339(self._clock.now_ns())
        if self._as_json:
            line = json.dumps({"time": time, "event": what, "path": path, **facts})
        else:
            shown = path.removeprefix(f"{self._root}/")
            line = f"{time[:19]}Z {what:<9} {shown}: {in_words(what, facts)}"
        with self._mutex:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="fsrun-journal", daemon=True)
                self._thread.start()
        self._lines.put(line)

    def _work(self) -> None:
        broken = False
        while True:
            line = self._lines.get()
            if isinstance(line, threading.Event):
                line.set()
                continue
            try:
                if not broken:
                    self._write(line)
            except (OSError, ValueError):
                broken = True  # nobody reads any more; the status file goes on telling


def in_words(what: str, facts: Mapping[str, Any]) -> str:
    """The facts of an event as a person reads them."""
    match what:
        case "closed":
            silent = f" for {facts['silent']:.0f} s" if facts.get("silent") else ""
            said = f"no heartbeat{silent}" if facts["reason"] == "expired" else facts["reason"]
            return f"session {facts['session']} of job {facts['job']} is closed as crashed: {said} ({facts['holder']})"
        case "recovered":
            return f"{facts['entry']}: attempt {facts['attempt']} of job {facts['job']} was lost, brought home"
        case "view":
            return f"view of job {facts['job']} corrected to session {facts['session']}"
        case "swept":
            return f"{facts['names']} orphaned heartbeats removed"
        case "trash":
            return f"{facts['names']} removed from trash/"
        case "cleared":
            return f"old temporary {facts['file']} removed"
        case "compacted":
            return "data.parquet built" + (" as a cache of the live run" if facts.get("live") else "")
        case "found":
            return f"job {facts['job']} is open, session {facts['session']} ({facts['holder']})"
        case _:
            return str(facts.get("message", ""))
