"""Calls of ``add`` made into lines, a batch at a time, with what a batch says about the run (protocol.md 6, 8.2).

Does: checks steps and tags that were not seen before; gives calls without a step the next one; keeps the highest step
and the last value of each tag; words warnings, each fault once. Leaves to others: threads and when (``writer``), bytes
(``core.lines``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from fsrun.core.lines import encode_lines
from fsrun.core.values import INT_MAX, INT_MIN, as_step, check_tag, kind_of, printable, raise_if_meant

Call = tuple[int | None, float, Mapping[str, int | float], str | None]
"""Step, time in seconds since 1970, values, key of an outcome."""

_MOST_TAGS = 100_000
_MOST_FAULTS = 1_000
_NAMED = 5


class Encoder:
    """Encodes the calls of one job in their order. Used by one thread at a time, ``complain`` by any."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._tags: set[str] = set()
        self._faults: set[tuple[str, str]] = set()
        self.highest: int | None = None
        """The highest step so far."""
        self.last: dict[str, int | float] = {}
        """The last value of each tag (of the first 100,000)."""
        self.call_size = 400.0
        """About how many bytes of memory a call takes before it is encoded, as the last batch had it."""

    def encode(self, batch: Sequence[Call]) -> tuple[bytes, int]:
        """Return the lines of ``batch`` and their number; calls that cannot be logged are warned about and left out.

        Tags may be objects of the user's, whose methods raise anything: such a call is lost by itself. Never raises.
        """
        try:
            return self._encode(batch, self._is_plain(batch))
        except BaseException as error:  # noqa: BLE001 - see above
            raise_if_meant(error)
            parts = [self._encode_alone(call) for call in batch]
            return b"".join(data for data, _ in parts), sum(count for _, count in parts)

    def _encode_alone(self, call: Call) -> tuple[bytes, int]:
        try:
            return self._encode([call], plain=False)
        except BaseException as error:  # noqa: BLE001 - see above
            raise_if_meant(error)
            self.complain({"": f"a call that cannot be written ({type(error).__name__})"})
            return b"", 0

    def _encode(self, batch: Sequence[Call], plain: bool) -> tuple[bytes, int]:
        points: Sequence[Call] = batch
        if not plain:
            points = [point for call in batch if (point := self._checked(call)) is not None]
        data = encode_lines(points)  # type: ignore[arg-type]
        last = self.last
        for _, _, values, _ in points:
            last.update(values)
        if len(last) > _MOST_TAGS:
            self.last = {tag: last[tag] for tag in list(last)[:_MOST_TAGS]}
        keys = sum(len(values) for _, _, values, _ in batch)
        self.call_size = 280 + 64 * keys / len(batch)
        return data, len(points)

    def _is_plain(self, batch: Sequence[Call]) -> bool:
        """Whether nothing in the batch needs a look: all tags known, all steps there and whole."""
        tags: set[str] = set().union(*[values for _, _, values, _ in batch])
        steps = [step for step, _, _, _ in batch]
        if not tags <= self._tags or {*map(type, steps)} != {int}:
            return False
        low: int = min(steps)  # type: ignore[type-var, assignment]
        high: int = max(steps)  # type: ignore[type-var, assignment]
        if low < INT_MIN or high > INT_MAX:
            return False
        self.highest = high if self.highest is None else max(self.highest, high)
        return True

    def _checked(self, call: Call) -> Call | None:
        step, time, values, entry = call
        refused: dict[str, str] = {}
        if any(type(tag) is not str for tag in values):
            values = _plainly_named(cast("Mapping[object, int | float]", values), refused)
        if step is None:
            step = 0 if self.highest is None else self.highest + 1
        try:
            step = as_step(step)
        except ValueError as error:
            self.complain({"": f"a call whose step is {error}"})
            return None
        for tag in values.keys() - self._tags:
            reason = check_tag(tag)
            if reason is not None:
                refused[printable(tag)] = reason
            elif len(self._tags) < _MOST_TAGS:
                self._tags.add(tag)
        if refused:
            self.complain(refused)
            values = {tag: value for tag, value in values.items() if check_tag(tag) is None}
        if not values:
            return None
        self.highest = step if self.highest is None else max(self.highest, step)
        return step, time, values, entry

    def complain(self, refused: Mapping[str, str]) -> None:
        """Warn about tags (an empty one: the whole call) and why they are refused, unless that was said before."""
        fresh = [item for item in refused.items() if item not in self._faults]
        if not fresh or len(self._faults) > _MOST_FAULTS:
            return
        self._faults.update(fresh)
        named = [f"{printable(tag)!r} ({reason})" if tag else reason for tag, reason in fresh[:_NAMED]]
        more = f" and {len(fresh) - _NAMED} more" if len(fresh) > _NAMED else ""
        rest = "" if "" in refused else ". The rest of the call counts"
        self._warn(f"not logged: {', '.join(named)}{more}{rest}")


def _plainly_named(values: Mapping[object, int | float], refused: dict[str, str]) -> dict[str, int | float]:
    """``values`` under plain text; keys of other types are ``refused``. Calls no method of a key."""
    named: dict[str, int | float] = {}
    for tag, value in values.items():
        if isinstance(tag, str):
            named[str.__str__(tag)] = value
        else:
            refused[kind_of(tag)] = f"a tag is text, not {kind_of(tag)}"
    return named
