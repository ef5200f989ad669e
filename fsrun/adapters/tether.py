"""An evaluator that a trainer starts for itself: ``fsrun eval`` in a process that ends with the trainer.

Does: start, restart where it died, end. The two are tied by a pipe: its end says that the trainer is gone, however it
went. Leaves to others: what is evaluated (``fsrun eval``), the pause around it (``holding``).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import fsrun
from fsrun.adapters import child
from fsrun.core.redaction import redact_argv

RESTARTS = 3
"""How often an evaluator that dies is started again without an evaluation in between."""
_USAGE, _HELD = 2, 3
_LOOK = 1.0
_GRACE = 20.0
"""Seconds that an evaluator whose trainer is gone has to end its session and its engines' requests."""
_ONE_RANK = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}


class EvaluatorProcess:
    """One ``fsrun eval ARGUMENTS``, kept alive. ``warn`` is told what happens to it.

    After a crash of this process: the child sees the end of its pipe, gives its entry back and ends.
    """

    def __init__(self, arguments: Sequence[str], warn: Callable[[str], object]) -> None:
        self.arguments = list(arguments)
        self._warn = warn
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._left = RESTARTS
        self._over = False
        self._owner = os.getpid()
        self.is_elsewhere = False
        """Whether another process is this evaluator, so that none is needed here."""

    @property
    def pid(self) -> int | None:
        """Its process number, while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def ensure(self) -> bool:
        """Start it unless it runs; False where it cannot be had any more. Never raises."""
        if self._over or os.getpid() != self._owner:
            return False
        if self._process is not None:
            status = self._process.poll()
            if status is None:
                return True
            if not self._ended(status):
                return False
        try:
            self._start()
        except OSError as error:
            self._over = True
            self._warn(f"the evaluator cannot be started: {error}")
            return False
        return True

    def _ended(self, status: int) -> bool:
        """Whether it is worth another start."""
        self._let_go()
        how = child.ending(status)
        if status == _HELD:
            # Another process is this evaluator: what is handed over is evaluated by that one.
            self._over = self.is_elsewhere = True
            self._warn("another process evaluates this run already; no evaluator is started here")
        elif status == _USAGE or self._left == 0:
            self._over = True
            tried = "" if status == _USAGE else f" after {RESTARTS} restarts"
            self._warn(f"the evaluator ended with {how}{tried} and is not started again: fsrun {self._line()}")
        else:
            self._left -= 1
            if status != 0:
                self._warn(f"the evaluator ended with {how} and is started again")
        return not self._over

    def worked(self) -> None:
        """An evaluation came to its end: restarts are counted from here."""
        self._left = RESTARTS

    def close(self, wait: float = 0.0) -> None:
        """End it, after ``wait`` seconds in which it may end by itself. Never raises."""
        if os.getpid() != self._owner:
            return
        self._over = True
        process = self._process
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(wait)
            with contextlib.suppress(OSError):
                child.stop(process, grace=_GRACE)
        self._let_go()

    def _start(self) -> None:
        theirs, self._pipe = os.pipe()
        try:
            self._process = child.start(
                [sys.executable, "-P", "-m", "fsrun.adapters.tether", str(theirs), str(self._owner), *self.arguments],
                environment={**_ONE_RANK, **_this_fsrun(os.environ)},
                pass_fds=(theirs,),
            )
        except OSError:
            self._let_go()
            raise
        finally:
            os.close(theirs)

    def _let_go(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
        self._pipe, self._process = -1, None

    def _line(self) -> str:
        import shlex

        return shlex.join(redact_argv(self.arguments))


def _this_fsrun(environment: Mapping[str, str]) -> dict[str, str]:
    """What makes a child import this very fsrun, also where the trainer found it by ``sys.path`` alone.

    A folder of installed packages is found anyway; named here it would come before the standard library.
    """
    folder = os.path.dirname(os.path.dirname(os.path.abspath(fsrun.__file__)))
    if folder in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, (folder, environment.get("PYTHONPATH"))))}


def _watch(descriptor: int, parent: int) -> None:
    """Wait for the end of the parent; then end this process, first in order, then at once."""
    # A forked child of the trainer may hold the pipe open for longer: its number is looked at too.
    while not select.select([descriptor], [], [], _LOOK)[0] and os.getppid() == parent:
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE)
    os.killpg(0, signal.SIGKILL)


def main(descriptor: int, parent: int, arguments: Sequence[str]) -> None:
    """Be ``fsrun ARGUMENTS``, for as long as the parent lives."""
    import runpy

    os.set_inheritable(descriptor, False)
    threading.Thread(target=_watch, args=(descriptor, parent), name="fsrun-tether", daemon=True).start()
    sys.argv = ["fsrun", *arguments]
    runpy.run_module("fsrun", run_name="__main__")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
