"""Connections that cost too much: those that never say what they want, and more of them than there are descriptors.

A request has ``HEADERS`` seconds to arrive. Where there are as many connections as may be, a new one takes the place of
the one that has been silent longest, so that who only holds connections open keeps nobody out.

Leaves to others: what is answered (``app``), the sockets that listen (``server``).
"""

from __future__ import annotations

import asyncio
import errno
import resource
import time
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS = 10.0
"""Seconds in which a request has to be there, from its connection or its first byte on."""
MOST = 1000
"""Connections at one time, where the process may have twice as many descriptors."""
_WANTED = 65_536
"""Descriptors that are asked for; some systems allow a billion, which programs that count them take long over."""
_NONE_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE = 60.0
"""Seconds between two lines about descriptors that ran out."""


def raise_limit() -> int:
    """Allow this process as many descriptors as it may have; how many connections that is enough for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
        except (OSError, ValueError):
            pass
    # The other half is for files.
    return MOST if soft == resource.RLIM_INFINITY else max(8, min(MOST, soft // 2))


class Connections:
    """Makes the connections of one server, and knows which of them have nothing under way, longest first."""

    def __init__(self, most: int, headers: float = HEADERS) -> None:
        self.most = most
        self.headers = headers
        self.silent: dict[_Connection, None] = {}

    def __call__(self, *arguments: Any, **named: Any) -> asyncio.Protocol:
        """A new one, as uvicorn asks for it."""
        made = _Connection(*arguments, **named)
        made.all = self
        return made


class _Connection(H11Protocol):
    """One connection. Its clock is set by the first byte of a request and not by later ones."""

    all: Connections
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.all.most:
            longest = next(iter(self.all.silent), self)
            longest.all.silent.pop(longest, None)
            longest.transport.abort()
            if longest is self:
                return
        self._rest()
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Read what came; a request that is whole is given all the time that its answer takes."""
        self._expect()
        super().data_received(data)
        if self._is_busy():
            self._stop_clock()
            self.all.silent.pop(self, None)

    def on_response_complete(self) -> None:
        """Go on with the next request of the connection."""
        super().on_response_complete()
        if not self._is_busy():
            self._rest()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._stop_clock()
        self.all.silent.pop(self, None)
        super().connection_lost(exc)

    def _is_busy(self) -> bool:
        return bool(self.cycle) and not self.cycle.response_complete

    def _rest(self) -> None:
        if not self.transport.is_closing():
            self.all.silent[self] = None

    def _expect(self) -> None:
        if self._late is None and not self._is_busy() and not self.transport.is_closing():
            self._late = self.loop.call_later(self.all.headers, self._give_up)

    def _give_up(self) -> None:
        self._late = None
        if not self._is_busy():
            self.transport.abort()

    def _stop_clock(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class Told:
    """Handles what the event loop complains of: descriptors that ran out are one line a minute."""

    def __init__(self, say: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._last = float("-inf")

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Tell of it, or of all else as the loop does."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _NONE_LEFT:
            loop.default_exception_handler(context)
        elif self._clock() - self._last >= _PAUSE:
            self._last = self._clock()
            self._say(f"no connection can be taken for a moment: {error.strerror}; see ulimit -n")
