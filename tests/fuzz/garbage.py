"""Strategies of what may stand where something else should, and the bounds that a verdict has to keep."""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.fuzz.damage import TEXTS, VALUES

DEEPER = int(os.environ.get("FSRUN_FUZZ", "1"))
"""$FSRUN_FUZZ: so many times the examples of the quick profile, for a run by night."""
SECONDS = 20.0
"""What one verdict may take on a loaded machine: a hang takes longer."""


def examples(count: int) -> settings:
    """``count`` examples in the quick profile; slow machines are no fault."""
    quiet = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
    return settings(max_examples=count * DEEPER, deadline=None, suppress_health_check=quiet)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["", "\0", "../x", "/etc/passwd", "NaN", "1.0", "2.0", "main", "9" * 5000, "a\nb", "x" * 5000]),
    st.sampled_from([-1, 0, 1, 2**31, 2**53, 2**63, 1e308, 1.0, 0.5]),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
raw = st.one_of(
    st.binary(max_size=200),
    st.sampled_from(TEXTS),
    st.sampled_from(VALUES).map(lambda text: text.encode() + b"\n"),
    values.map(lambda value: orjson.dumps(value, default=str) + b"\n"),
)
"""Bytes: any, those that are known to be awkward, and JSON of anything."""


def mutated(good: dict[str, Any], more: tuple[str, ...] = ()) -> st.SearchStrategy[dict[str, Any]]:
    """A good record of which some keys are gone and some hold anything."""
    keys = [*good, *more]

    @st.composite
    def build(draw: st.DrawFn) -> dict[str, Any]:
        gone = draw(st.sets(st.sampled_from(keys), max_size=2))
        other = draw(st.dictionaries(st.sampled_from(keys), values, max_size=3))
        return {key: value for key, value in (good | other).items() if key not in gone or key in other}

    return build()


def spoiled(good: bytes) -> st.SearchStrategy[bytes]:
    """Good bytes that were cut, flipped, doubled, or have something else in their middle."""

    @st.composite
    def build(draw: st.DrawFn) -> bytes:
        data = bytearray(good)
        for _ in range(draw(st.integers(1, 4))):
            at = draw(st.integers(0, max(0, len(data) - 1)))
            match draw(st.sampled_from(("cut", "flip", "put", "drop", "swap"))):
                case "cut":
                    del data[at:]
                case "flip" if data:
                    data[at] ^= 1 << draw(st.integers(0, 7))
                case "put":
                    data[at:at] = draw(st.binary(min_size=1, max_size=12) | st.sampled_from([b"\0", b"\r\n", b"\xff"]))
                case "drop":
                    del data[at : at + draw(st.integers(1, 40))]
                case "swap":
                    data = data[at:] + data[:at]
        return bytes(data)

    return build()


def verdict(call: Callable[[], object], *allowed: type[Exception]) -> object:
    """What a call says; None where it refuses as its documentation says. It does so in time."""
    began = time.monotonic()
    try:
        found = call()
    except allowed:
        found = None
    assert time.monotonic() - began < SECONDS, "a verdict takes no time"
    return found


@contextmanager
def bounded(most: int) -> Iterator[None]:
    """No more than ``most`` bytes are held at once meanwhile."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()
