"""What a job records by itself while it runs: its console, samples of the machine, and its environment once.

Does: makes the parts that are wanted, and hands on what happens to the session. A part that cannot start is a warning
and no more. Leaves to others: which are wanted (``core.capture``), what each does (``console``,
``system``, ``environment``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fsrun.core.capture import Capture

if TYPE_CHECKING:
    from fsrun.disk.clock import Clock
    from fsrun.disk.fs import FileSystem
    from fsrun.run.console import Console
    from fsrun.run.environment import Environment
    from fsrun.run.session import Session
    from fsrun.run.system import System

CONSOLE_WAIT = 2.0
"""Seconds that the end of a run waits for its console, at most."""
_LONGEST = 1.0
"""The same for each other part."""


class Captures:
    """The parts of one open run that record by themselves; those that are not wanted are None."""

    def __init__(
        self, wanted: Capture, fs: FileSystem, clock: Clock, session: Session, warn: Callable[[str], None]
    ) -> None:
        self._wanted = wanted
        self._fs, self._clock, self._session, self._warn = fs, clock, session, warn
        self.console: Console | None = None
        self.system: System | None = None
        self.environment: Environment | None = None

    def start(self) -> None:
        """Start what is wanted, in the background. Never raises.

        After a crash: as the parts say; nothing of it is needed to read the run.
        """
        for start in (self._start_console, self._start_environment, self._start_system):
            try:
                start()
            except Exception as error:  # noqa: BLE001 - a training of which not all is recorded is still a training
                self._warn(f"{self._session.run_dir}: not all is recorded: {type(error).__name__}: {error}")

    def _start_console(self) -> None:
        if self._wanted.console:
            from fsrun.run.console import Console

            self.console = Console(self._session.store, self._warn)
            self.console.start()

    def _start_environment(self) -> None:
        session = self._session
        if self._wanted.environment:
            from fsrun.run.environment import Environment

            self.environment = Environment(
                self._fs,
                self._clock,
                session.run_dir,
                session.job,
                session.number,
                warn=self._warn,
                code=self._wanted.code,
            )
            self.environment.start()

    def _start_system(self) -> None:
        session = self._session
        if self._wanted.system:
            from fsrun.run.system import System

            self.system = System(
                self._fs,
                self._clock,
                session.run_dir,
                session.job,
                session.number,
                interval=self._wanted.system,
                is_protected=session.is_protected,
                warn=self._warn,
            )
            self.system.start()

    def acknowledged(self) -> dict[str, int]:
        """Bytes of each log that write and fsync acknowledged; nothing more counts in them until ``reopen``."""
        return {} if self.system is None else self.system.acknowledged()

    def reopen(self, session: int) -> None:
        """Go on in session ``session``, which continues the one before."""
        if self.console is not None:
            self.console.reopen(session)
        if self.system is not None:
            self.system.reopen(session)

    def moved(self) -> None:
        """The run folder is said to be gone."""
        if self.system is not None:
            self.system.moved()

    def fenced(self) -> None:
        """A newer session is open: stop."""
        if self.console is not None:
            self.console.fenced()
        if self.system is not None:
            self.system.fenced()
        if self.environment is not None:
            self.environment.stop()

    def forget(self) -> None:
        """This is a forked child."""
        if self.console is not None:
            self.console.forget()

    def close(self, timeout: float) -> None:
        """Bring what there is into the run folder, within ``timeout`` seconds."""
        wait = min(_LONGEST, timeout / 2)
        if self.environment is not None:
            self.environment.close(wait)
        if self.system is not None:
            self.system.close(wait)
        if self.console is not None:
            self.console.finish(min(CONSOLE_WAIT, timeout))
