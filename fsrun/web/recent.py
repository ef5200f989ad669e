"""Answers that cost something, shared by all who ask within a moment: pages ask again every second."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fsrun.disk.clock import Clock, SystemClock

_KEPT = 32
_LEAST = 0.5


@dataclass(slots=True)
class _Made:
    busy: threading.Lock = field(default_factory=threading.Lock)
    value: Any = None
    until: float = -1.0


class Recent:
    """The last answers, by key. Called from several threads; one makes an answer, the others wait for it.

    ``share``: of the time that one core may spend on making one answer again and again.
    """

    def __init__(self, clock: Clock | None = None, *, share: float = 0.2) -> None:
        self._again = 1 / share - 1
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._made: OrderedDict[str, _Made] = OrderedDict()

    def get(self, key: str, make: Callable[[], Any]) -> Any:
        """The answer under a key, made anew where it is old. What ``make`` raises is raised and not kept."""
        with self._lock:
            made = self._made.setdefault(key, _Made())
            self._made.move_to_end(key)
            while len(self._made) > _KEPT:
                self._made.popitem(last=False)
        with made.busy:
            began = self._clock.monotonic()
            if began >= made.until:
                made.value = make()
                ended = self._clock.monotonic()
                made.until = ended + max(_LEAST, self._again * (ended - began))
            return made.value
