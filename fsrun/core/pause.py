"""What evaluating in the training loop costs, and whether a fleet would pay.

Does: from when main logged its steps and how long it stood still, the share of its time that went into evaluations, and
what follows. Leaves to others: reading these points (``run.costs``), showing them.

The rule: start on the training engines; move to a fleet when the pause becomes a large share of the step time and whole
GPUs can be spared. *Large* is a tenth: below it even a fleet that costs nothing makes training less than 11% faster.
A fleet of g of the n GPUs leaves training (n - g)/n of its speed, so that it pays while g/n is less than the share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

LARGE_SHARE = 0.10
"""From which share of the time on a fleet is worth its GPUs."""
MIN_PAUSES = 2
"""Fewer tell no interval."""
MIN_STEPS = 3
"""Fewer stretches between logged steps tell no step time."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Training stood still for ``seconds`` until ``time`` (s since 1970), for the evaluation at ``step``."""

    step: int
    time: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Cost:
    """The numbers and what follows from them."""

    pauses: int
    pause_s: float
    """Median seconds of a pause."""
    interval: float
    """Median steps from one pause to the next."""
    step_s: float
    """Median seconds of a step without evaluation."""
    share: float
    """Of the time of training: pause / (pause + interval * step)."""
    fleet_pays: bool
    """Whether the share is large."""
    gpus: int | None = None
    """GPUs that main sees; None where that is not known."""
    spare: int | None = None
    """The largest fleet, in whole ones of these GPUs, that costs less than it gains; None where they are not known."""


def cost_of(steps: Iterable[tuple[int, float]], pauses: Sequence[Pause], gpus: int | None = None) -> Cost | None:
    """The cost of the pauses; None where there are too few of them, or of logged steps, to tell.

    ``steps``: (step, time) as main logged them. ``gpus``: how many it has. Pauses are taken out of the time between two
    steps by when they were, so that it does not matter whether main logs before or after it evaluates.
    """
    held = [pause for pause in pauses if pause.seconds > 0]
    ordered = sorted({pause.step for pause in held})
    taken = step_times(steps, held)
    if len(ordered) < MIN_PAUSES or len(taken) < MIN_STEPS:
        return None
    interval = median(b - a for a, b in pairwise(ordered))
    seconds, step = median(pause.seconds for pause in held), median(taken)
    whole = seconds + interval * step
    share = seconds / whole if whole > 0 else 0.0
    spare = None if gpus is None else max(0, min(gpus - 1, _below(share * gpus)))
    return Cost(len(held), seconds, float(interval), step, share, share >= LARGE_SHARE, gpus, spare)


def _below(value: float) -> int:
    """The largest whole number that is less than ``value``."""
    return int(value) - (value == int(value))


def step_times(steps: Iterable[tuple[int, float]], pauses: Iterable[Pause]) -> list[float]:
    """Seconds a step between each two logged steps, without the pauses that fall in between.

    A step that does not come after the one before it (a resumed trainer), or a clock that went back, tells nothing.
    """
    held = sorted((pause.time - pause.seconds, pause.time) for pause in pauses)
    found: list[float] = []
    before: tuple[int, float] | None = None
    first = 0
    for step, time in steps:
        if before is not None and step > before[0] and time > before[1]:
            while first < len(held) and held[first][1] <= before[1]:
                first += 1
            paused, place = 0.0, first
            while place < len(held) and held[place][0] < time:
                paused += max(0.0, min(time, held[place][1]) - max(before[1], held[place][0]))
                place += 1
            found.append(max(0.0, time - before[1] - paused) / (step - before[0]))
        elif before is not None and time < before[1]:
            first = 0
        before = (step, time)
    return found
