"""The daemon beside the page: ``fsrun daemon ROOT`` as a child that ends with this process, however that ends.

Does: starts it, starts it again where it died, ends it; where another one has the root already, says so, and starts
its own once that one has gone. Leaves to others: what it does (``fsrun.daemon``), how the two are tied
(``adapters.tether``).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from fsrun.adapters import child
from fsrun.web.site import daemon_of

RESTARTS = 3
"""How often one that dies is started again."""
_HELD = 3
_PAUSE = 1.0
_LOOK = 5.0
"""Seconds between two looks at a daemon of somebody else."""
_LONGEST = 600.0
"""Seconds at most until the next try, where a daemon has the root that does not say so here."""
_GRACE = 10.0


class Companion:
    """One ``fsrun daemon ROOT``. ``say`` is told what happens to it; called from a thread of its own.

    After a crash of this process: the child sees the end of its pipe and ends.
    """

    def __init__(self, root: str, say: Callable[[str], object]) -> None:
        self._root = root
        self._say = say
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._thread = threading.Thread(target=self._keep, name="fsrun-companion", daemon=True)

    @property
    def pid(self) -> int | None:
        """Its process number, while it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def is_kept(self) -> bool:
        """Whether one runs, or is about to."""
        return self._thread.is_alive() and not self._over.is_set()

    def start(self) -> None:
        """Start it. Never raises."""
        self._thread.start()

    def close(self) -> None:
        """End it and wait for that. Never raises."""
        self._over.set()
        with self._lock:
            process = self._process
        if process is not None:
            with suppress(OSError):
                child.stop(process, grace=_GRACE)
        self._thread.join(_GRACE)

    def _keep(self) -> None:
        left, pause = RESTARTS, _LOOK
        while self._await_other():
            try:
                process = self._start()
            except OSError as error:
                self._say(f"the daemon cannot be started: {error}")
                return
            if process is None:
                return
            status = process.wait()
            self._let_go()
            if self._over.is_set():
                return
            if status == _HELD:  # of which it has said itself that another one has the root
                if self._over.wait(pause):
                    return
                pause = min(2 * pause, _LONGEST)
                continue
            pause = _LOOK
            again = "is started again" if left else f"is not started again; start it by: fsrun daemon {self._root}"
            self._say(f"the daemon ended with {child.ending(status)} and {again}")
            if not left or self._over.wait(_PAUSE):
                return
            left -= 1

    def _await_other(self) -> bool:
        """Wait while a daemon of somebody else has the root; False where all is over by then."""
        there = daemon_of(self._root)
        if there is not None:
            self._say(f"a daemon runs on this host already (process {there['pid']}); the page goes on with that one")
            while daemon_of(self._root) is not None:
                if self._over.wait(_LOOK):
                    return False
            self._say("the daemon that ran on this host has ended; one is started beside the page")
        return not self._over.is_set()

    def _start(self) -> subprocess.Popen[bytes] | None:
        """The process, or None where all is over by now."""
        command = [sys.executable, "-P", "-m", "fsrun.adapters.tether"]
        with self._lock:
            if self._over.is_set():
                return None
            theirs, self._pipe = os.pipe()
            try:
                words = [*command, str(theirs), str(os.getpid()), "daemon", self._root]
                self._process = child.start(words, pass_fds=(theirs,))
            except OSError:
                self._let_go()
                raise
            finally:
                os.close(theirs)
            return self._process

    def _let_go(self) -> None:
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)
