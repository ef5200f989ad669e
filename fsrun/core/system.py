"""Samples of the machine (protocol.md 6.13): what a line says, and rates of counters.

Leaves to others: measuring (``run.probes``), when and where to (``run.system``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple, TypeGuard

import orjson

from fsrun.core.codec import loads
from fsrun.core.lines import complete_prefix

TIME = "time"
_MAX_INT = 2**63 - 1


class Rates:
    """Counters that only rise, looked at again and again.

    A counter that fell was reset, by a reboot of a device or an overflow: then nothing is known of that stretch.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def increase(self, name: str, value: float, now: float = 0.0) -> float | None:
        """How much the counter rose since the last look; None at the first one and after a reset."""
        before = self._last.get(name)
        self._last[name] = (value, now)
        return None if before is None or value < before[0] else value - before[0]

    def per_second(self, name: str, value: float, now: float) -> float | None:
        """The same by second; ``now``: seconds on a clock that never goes back and counts suspend."""
        before = self._last.get(name)
        risen = self.increase(name, value, now)
        return None if risen is None or before is None or now <= before[1] else risen / (now - before[1])


class Sample(NamedTuple):
    """One line: figures by name, all of one moment."""

    time: float
    """Seconds since 1970, UTC."""
    values: dict[str, int | float]


def encode_sample(time: float, values: Mapping[str, int | float]) -> bytes:
    """The line of a sample. What is no finite number is left out; fractions keep two places."""
    line: dict[str, int | float] = {TIME: round(time, 3)}
    for name, value in values.items():
        if isinstance(value, float):
            if math.isfinite(value):
                line[name] = round(value, 2)
        elif abs(value) <= _MAX_INT:
            line[name] = value
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def parse_samples(data: bytes) -> tuple[list[Sample], list[tuple[int, str]]]:
    """Read the whole lines of ``data``: samples, and faulty lines as (number of the line from 1, reason)."""
    samples: list[Sample] = []
    faults: list[tuple[int, str]] = []
    for number, line in enumerate(data[: complete_prefix(data)].split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            record = loads(line)
        except orjson.JSONDecodeError:
            faults.append((number, "no JSON"))
            continue
        time = record.pop(TIME, None) if isinstance(record, dict) else None
        if not _is_number(time):
            faults.append((number, "no object with a time"))
            continue
        samples.append(Sample(float(time), {name: value for name, value in record.items() if _is_number(value)}))
    return samples, faults


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
