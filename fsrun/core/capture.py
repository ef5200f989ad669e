"""Which of console, system metrics and environment a job records: what ``init`` was given, and what the person set.

Does: the rule between arguments and the variables FSRUN_CAPTURE, FSRUN_CONSOLE, FSRUN_SYSTEM and FSRUN_ENVIRONMENT.
Leaves to others: recording.

Off is stronger than on: ``capture=False`` or ``FSRUN_CAPTURE=0`` switches everything off. An argument that was given
counts before its own variable, and the variable before what is usual.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fsrun.core.errors import UsageError

CAPTURE, CONSOLE, SYSTEM, ENVIRONMENT = "FSRUN_CAPTURE", "FSRUN_CONSOLE", "FSRUN_SYSTEM", "FSRUN_ENVIRONMENT"
SYSTEM_INTERVAL = 10.0
"""Seconds between two samples of the machine."""
_MAX_INTERVAL = 86_400.0
_WORDS = {"0": False, "false": False, "no": False, "off": False, "1": True, "true": True, "yes": True, "on": True}


@dataclass(frozen=True, slots=True)
class Capture:
    """What a job records. ``system``: seconds between two samples, 0 for none."""

    console: bool
    system: float
    environment: bool
    code: bool = True
    """Whether the environment includes code and packages; ranks besides the first leave that to it."""


def choose(arguments: Mapping[str, object], environ: Mapping[str, str]) -> Capture:
    """Decide by the arguments ``capture``, ``console``, ``system`` and ``environment`` of ``init``.

    True is the usual, for which the variable may speak; False (for ``system`` also None and 0) is off; for ``system`` a
    number is seconds; an argument that is not there is off. Raises ``UsageError`` naming the argument or the variable
    that is neither.
    """
    interval = _interval(arguments.get("system"), environ)
    console = _flag("console", arguments.get("console"), CONSOLE, environ)
    environment = _flag("environment", arguments.get("environment"), ENVIRONMENT, environ)
    on = _flag("capture", arguments.get("capture"), CAPTURE, environ)
    return Capture(console=console, system=interval, environment=environment) if on else Capture(False, 0.0, False)


def _flag(name: str, given: object, variable: str, environ: Mapping[str, str]) -> bool:
    if given is not True:
        if given is False or given is None:
            return False
        raise UsageError(f"{name}={given!r} is neither True nor False")
    text = environ.get(variable, "").strip().lower()
    if text and text not in _WORDS:
        raise UsageError(f"${variable}={text!r} is neither 1 nor 0")
    return _WORDS.get(text, True)


def _interval(given: object, environ: Mapping[str, str]) -> float:
    if given is None or given is False:
        return 0.0
    source, value = "system", given
    if given is True:
        text = environ.get(SYSTEM, "").strip().lower()
        source, value = f"${SYSTEM}", text
        if text in ("", *_WORDS):
            return SYSTEM_INTERVAL if _WORDS.get(text, True) else 0.0
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not 0.0 <= seconds <= _MAX_INTERVAL:
        raise UsageError(f"{source}={value!r} is no number of seconds from 0 (off) to {_MAX_INTERVAL:.0f}")
    return seconds
