"""When a framework's callback evaluates: from an interval and from what was handed over already.

Does: keeps the step asked last, so that of several steps at once the first behind a due one counts, and each once.
Leaves to others: the rule itself (``core.schedule``).
"""

from __future__ import annotations

from fsrun.core.schedule import is_due


class Due:
    """The due steps of one training. ``interval`` None: every step that is asked about is due."""

    def __init__(self, interval: int | None, *, first: bool, last: bool) -> None:
        self.interval, self.first, self.last = interval, first, last
        self._before: int | None = None
        self._done: set[int] = set()
        is_due(0, interval)  # refuses an interval that cannot be, before the training

    def at(self, step: int, total: int | None) -> bool:
        """Whether the model after ``step`` updates is to be handed over now; each step once."""
        before, self._before = self._before, step
        if step in self._done:
            return False
        if self.interval is None:
            found = step > 0 or self.first
        else:
            found = is_due(step, self.interval, first=self.first, last=self.last, total=total, before=before)
        if found:
            self._done.add(step)
        return found

    def at_end(self, step: int) -> bool:
        """Whether the model that the training ended with is to be handed over still."""
        if not self.last or step == 0 or step in self._done:
            return False
        self._done.add(step)
        return True

    def begin(self, step: int) -> None:
        """The training begins behind ``step``, which an earlier session handed over where it was due."""
        self._before = step if step > 0 else None
        if step > 0:
            self._done.add(step)
