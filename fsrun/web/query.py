"""What stands behind the ``?`` of an address: text by name, read as what a route needs, or refused by name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from fsrun.core.errors import UsageError

_LONGEST = 100
"""Of what was given, so much is quoted in an error."""


class Query:
    """The parameters of one request. A name that was given several times has several values."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        values: dict[str, list[str]] = {}
        for name, value in pairs:
            values.setdefault(name, []).append(value)
        self._values: Mapping[str, Sequence[str]] = values

    def text(self, name: str, default: str | None = None) -> str | None:
        """The last value of a name; ``default`` where it was not given or is empty."""
        return (self._values.get(name) or [""])[-1] or default

    def texts(self, name: str) -> list[str]:
        """All values of a name, in order."""
        return list(self._values.get(name, ()))

    def integer(self, name: str, default: int | None = None, *, least: int, most: int) -> int | None:
        """An integer between two bounds. Raises ``UsageError``."""
        given = self.text(name)
        if given is None:
            return default
        try:
            value = int(given)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise UsageError(f"{name}={given[:_LONGEST]!r} is no integer from {least} to {most}")
        return value

    def number(self, name: str, default: float | None = None) -> float | None:
        """A finite number. Raises ``UsageError``."""
        given = self.text(name)
        if given is None:
            return default
        try:
            value = float(given)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UsageError(f"{name}={given[:_LONGEST]!r} is no number")
        return value

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """One of some words. Raises ``UsageError``."""
        given = self.text(name, default) or default
        if given not in choices:
            raise UsageError(f"{name}={given[:_LONGEST]!r} is none of {', '.join(choices)}")
        return given
