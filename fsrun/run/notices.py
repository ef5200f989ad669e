"""What fsrun says to the person at the terminal: one channel, each kind of thing once, each loss by its name.

Does: hands warnings to ``logging.getLogger("fsrun")`` where somebody listens to it, and else writes one line to stderr.
Never raises, whatever was done to stderr.
"""

from __future__ import annotations

import logging
import re
import sys
from collections import deque

_MANY = 200
_NAMED = 20
"""Losses that are named one by one; the rest is counted at the end."""
_NUMBERS = re.compile(r"\d+")


class Notices:
    """Says each kind of thing once: two messages without a ``kind`` that differ in numbers alone are of one kind.

    What was lost is no kind: ``lost`` names it, whatever was said before.
    """

    __slots__ = ("_held", "_holds", "_lost", "_said", "prefix")

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self._said: set[str] = set()
        self._lost = 0
        self._held: deque[str] = deque()
        self._holds = False

    def warn(self, message: str, kind: str | None = None) -> None:
        """Say ``message`` unless its kind was said before; at most 200 kinds."""
        key = kind or _NUMBERS.sub("#", message)
        if key in self._said or len(self._said) >= _MANY:
            return
        self._said.add(key)
        self._say(message)

    def lost(self, message: str) -> None:
        """Say that something is lost, which ``message`` names; after the 20th it is counted alone."""
        self._lost += 1
        if self._lost <= _NAMED:
            self._say(message)
        if self._lost == _NAMED:
            self._say(f"{_NAMED} checkpoints were not handed over; further ones are counted at the end of the run")

    def count_lost(self) -> None:
        """At the end of a run: say how many were lost beyond those that were named."""
        if self._lost > _NAMED:
            self._say(f"{self._lost} checkpoints were not handed over, {self._lost - _NAMED} of them unnamed")

    def _say(self, message: str) -> None:
        self._held.append(f"{self.prefix}{message}")
        if not self._holds:
            self.tell()

    def hold(self) -> None:
        """Keep what is to be said until ``tell``: a thread that ends the run must not wait for a logger or a terminal.

        The thread that waits for the end may have been interrupted in either, and then holds its lock.
        """
        self._holds = True

    def release(self) -> None:
        """Say at once again what there is."""
        self._holds = False
        self.tell()

    def tell(self) -> None:
        """Say what was kept."""
        while self._held:
            try:
                message = self._held.popleft()
            except IndexError:  # another thread says it
                return
            say(message)


def say(message: str, level: int = logging.WARNING) -> None:
    """Say something: to the logger ``fsrun`` where it has handlers, else as one line on stderr."""
    try:
        logger = logging.getLogger("fsrun")
        if logger.hasHandlers():
            logger.log(level, message)
        elif level >= logging.WARNING and sys.stderr is not None:
            sys.stderr.write(f"fsrun: {message}\n")
    except Exception:  # noqa: BLE001 - a closed or replaced stderr is the user's own affair
        return
