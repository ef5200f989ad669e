"""What fsrun says to the person at the terminal: one channel, each kind of thing once.

Does: hands warnings to ``logging.getLogger("fsrun")`` where somebody listens to it, and else writes one line to stderr.
Never raises, whatever was done to stderr.
"""

from __future__ import annotations

import logging
import re
import sys

_MANY = 200
_NUMBERS = re.compile(r"\d+")


class Notices:
    """Says each kind of thing once: two messages that differ in numbers alone are of one kind."""

    __slots__ = ("_said", "prefix")

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self._said: set[str] = set()

    def warn(self, message: str, kind: str | None = None) -> None:
        """Say ``message`` unless its kind was said before; at most 200 kinds."""
        key = kind or _NUMBERS.sub("#", message)
        if key in self._said or len(self._said) >= _MANY:
            return
        self._said.add(key)
        say(f"{self.prefix}{message}")


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
