"""Whether a fleet that answers its health checks still gets on with the prompts: decided from loads, without I/O.

An engine's health check generates a token of its own, and passes beside a request that hangs; a request that a router
or an engine forgot leaves no trace at all. The limit of a long generation is hours, so neither is left to that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fsrun.adapters.sglang_api import Load


@dataclass(slots=True)
class Stalls:
    """What engines said of their load at the last looks. ``limit``: seconds without any change."""

    limit: float
    _last: dict[str, tuple[Load, float]] = field(default_factory=dict)
    """The load of each engine, and since when it is the same."""
    _idle_since: float | None = None

    def begin(self) -> None:
        """Forget all: another entry, or prompts that are asked again."""
        self._last.clear()
        self._idle_since = None

    def stuck(self, name: str, load: Load, now: float) -> bool:
        """Whether an engine has requests and generates nothing, for as long as the limit."""
        last = self._last.get(name)
        if last is None or last[0] != load or load.idle or load.used is None:
            self._last[name] = (load, now)
            return False
        return now - last[1] >= self.limit

    def forget(self, name: str) -> None:
        """Of an engine that does not serve any more."""
        self._last.pop(name, None)

    def lost(self, serving: list[str], now: float) -> bool:
        """Whether none of the engines that serve has had a request for as long as the limit."""
        known = [self._last[name][0] for name in serving if name in self._last]
        if not known or len(known) < len(serving) or not all(load.idle for load in known):
            self._idle_since = None
            return False
        if self._idle_since is None:
            self._idle_since = now
        return now - self._idle_since >= self.limit
