"""Long series made short enough to draw, without losing what stands out. Pure: arrays in, arrays out.

Of each column of pixels its first, last, lowest and highest point stay (M4), so that a spike of one step among a
million is drawn. A stretch without a number (NaN) stays a gap. Infinities have no place on an axis: they are told
apart. Means are given beside it, for smoothing: points that were chosen for standing out say little about the middle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from tsdownsample import M4Downsampler

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

LEAST, MOST = 16, 20_000
"""How many points may be asked for."""
_TOLD = 200
"""So many places without a finite number are named."""


@dataclass(frozen=True, slots=True)
class Means:
    """Averages of stretches of a series: at ``x``, of ``n`` points each. NaN, of 0, where the line is interrupted."""

    x: Array
    y: Array
    n: Array


@dataclass(frozen=True, slots=True)
class Reduced:
    """What is drawn of a series. ``y`` is NaN where a line is to be interrupted."""

    x: Array
    y: Array
    picked: Array
    """Place of each point in the series; -1 where a point only interrupts."""
    count: int
    """Points that the series has."""
    reduced: bool
    special: list[tuple[float, str]] = field(default_factory=list)
    """Where it is no finite number, and what it is: ``NaN``, ``Infinity``, ``-Infinity``."""
    specials: int = 0
    """How many there are; ``special`` names some."""
    means: Means | None = None
    breaks: list[float] = field(default_factory=list)
    """Where the line is interrupted although no number is missing."""


def word(value: float) -> float | str:
    """A number as JSON can say it: itself, or the word that stands for it."""
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def in_range(x: Array, start: float | None, stop: float | None) -> tuple[int, int]:
    """First and last+1 of the points between two values, with one more on either side: lines go on to the edge."""
    first = 0 if start is None else max(0, int(np.searchsorted(x, start, "left")) - 1)
    last = len(x) if stop is None else min(len(x), int(np.searchsorted(x, stop, "right")) + 1)
    return first, max(first, last)


def reduce(x: Array, y: Array, points: int, breaks: Sequence[int] = ()) -> Reduced:
    """At most about ``points`` points of a series. ``x``: finite and never falling; rising where it is of integers.

    ``breaks``: places to which no line leads from the place before, as after a night in which nothing ran.
    """
    found = _reduce(x, y, points, breaks)
    middles = np.unique([(float(x[at - 1]) + float(x[at])) / 2 for at in breaks if x[at - 1] < x[at]])
    if not len(middles):
        return found
    at = np.searchsorted(found.x, middles)
    parts = np.insert(found.x.astype(np.float64), at, middles), np.insert(found.y, at, np.nan)
    means = found.means
    if means is not None:
        inner = np.searchsorted(means.x, middles)
        means = Means(*(np.insert(a, inner, b) for a, b in ((means.x, middles), (means.y, np.nan), (means.n, 0))))
    picked = np.insert(found.picked, at, -1)
    return replace(found, x=parts[0], y=parts[1], picked=picked, means=means, breaks=middles.tolist())


def _reduce(x: Array, y: Array, points: int, breaks: Sequence[int]) -> Reduced:
    count = len(x)
    finite = np.isfinite(y)
    plain = bool(finite.all())
    special: list[tuple[float, str]] = []
    odd = np.empty(0, np.int64)
    if not plain:
        odd = np.flatnonzero(~finite)
        special = [(float(x[at]), str(word(float(y[at])))) for at in _some(odd, y)]
    if count <= points:
        drawn = y if plain else np.where(finite, y, np.nan)
        return Reduced(x, drawn, np.arange(count), count, False, special, len(odd))
    places = np.arange(count) if plain else np.flatnonzero(finite)
    chosen = places
    if len(places) > points:
        chosen = places[_m4(x if plain else x[places], y if plain else y[places], max(LEAST, points // 4 * 4))]
    means = _means(x, y, places, max(LEAST, points // 2), breaks) if len(places) else None
    if plain:
        return Reduced(x[chosen], y[chosen], chosen, count, True, means=means)
    picked, drawn_x, drawn_y = _with_gaps(x, y, chosen, odd, points)
    return Reduced(drawn_x, drawn_y, picked, count, True, special, len(odd), means)


def _m4(x: Array, y: Array, points: int) -> Array:
    """Places of the points that stay: of columns of equal width in x, as those of the pixels are."""
    if _is_even(x) or x[-1] <= x[0]:
        chosen = M4Downsampler().downsample(y, n_out=points)
    else:
        chosen = M4Downsampler().downsample(x.astype(np.float64) - float(x[0]), y, n_out=points)
    # The columns are as wide as fractions of floats say: now and then the last ones of a million points are in none.
    begin = int(chosen[-1]) + 1
    rest = y[begin:]
    if len(rest):
        chosen = np.append(chosen, [begin + int(rest.argmin()), begin + int(rest.argmax()), len(y) - 1])
    return np.unique(chosen.astype(np.int64))


def _is_even(x: Array) -> bool:
    """Whether these are steps without a hole, as they nearly always are. Holds for steps alone, which rise."""
    return x.dtype.kind == "i" and int(x[-1]) - int(x[0]) == len(x) - 1


def _some(odd: Array, y: Array) -> list[int]:
    """Some places without a finite number: infinities first, since they are seldom, then spread over all."""
    parts = [part for part in (odd[np.isinf(y[odd])], odd[np.isnan(y[odd])]) if len(part)]
    chosen = [part[_spread(len(part), _TOLD)] for part in parts]
    return sorted(np.concatenate(chosen).tolist()) if chosen else []


def _spread(count: int, most: int) -> Array:
    """At most so many places of ``count``, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, most).astype(np.int64))


def _with_gaps(x: Array, y: Array, chosen: Array, odd: Array, points: int) -> tuple[Array, Array, Array]:
    """The chosen points, and where there is no number between two of them the first and last place without one."""
    edges = np.searchsorted(odd, chosen)
    before = np.concatenate(([0], edges))
    after = np.concatenate((edges, [len(odd)]))
    gaps = np.flatnonzero(after > before)
    if len(gaps) > points:
        gaps = gaps[_spread(len(gaps), points)]
    missing = np.unique(np.concatenate((odd[before[gaps]], odd[after[gaps] - 1])))
    picked = np.concatenate((chosen, np.full(len(missing), -1, np.int64)))
    places = np.concatenate((chosen, missing))
    order = np.argsort(places, kind="stable")
    values = np.where(picked < 0, np.nan, y[places])
    return picked[order], x[places][order], values[order]


def _means(x: Array, y: Array, places: Array, bins: int, breaks: Sequence[int]) -> Means:
    """Averages of the points at ``places``; where more is missing than one of them is wide, the line is interrupted.

    Where the last ones are missing, it ends with the last place of all: that is where the series is without a number.
    """
    count = len(places)
    bins = min(bins, count)
    end = x[-1:] if len(y) - 1 - places[-1] > 0 else x[:0]
    gaps = np.empty(0, np.int64)
    apart = np.searchsorted(places, np.asarray(breaks, np.int64))
    apart = apart[apart < count]
    if count < len(y):
        x, y = x[places], y[places]
        gaps = np.flatnonzero(np.diff(places) > max(1, count // bins)) + 1
    starts = np.unique(np.concatenate((np.linspace(0, count, bins + 1).astype(np.int64)[:-1], gaps, apart)))
    n = np.diff(np.append(starts, count))
    if _is_even(x):
        mean_x = x[starts] + (n - 1) / 2
    else:
        # From the first one on, so that times of 1.7e9 s keep their fractions.
        mean_x = float(x[0]) + np.add.reduceat(x.astype(np.float64) - float(x[0]), starts) / n
    with np.errstate(over="ignore"):
        mean_y = np.add.reduceat(y, starts) / n
    at = np.searchsorted(starts, gaps)
    if not len(at) and not len(end):
        return Means(mean_x, mean_y, n)
    at = np.append(at, np.full(len(end), len(starts)))
    between = (mean_x[at[: len(gaps)] - 1] + mean_x[at[: len(gaps)]]) / 2
    return Means(np.insert(mean_x, at, np.append(between, end)), np.insert(mean_y, at, np.nan), np.insert(n, at, 0))
