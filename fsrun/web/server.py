"""Where the page is served: the sockets, and the server in them.

Does: binds before anything else begins, so that a port in use is one clear line; ends with the first signal. Leaves to
others: what is served (``app``), the daemon beside it (``companion``).
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from fsrun.core.errors import HeldError, UsageError
from fsrun.web.connections import Connections, Told, raise_limit

LOCAL = "localhost"
_BOTH = ("127.0.0.1", "::1")
_BACKLOG = 256
_AT_ONCE = 32
"""Connections that are taken before the next one is looked at: no more than are spare beside the limit of them."""
_TRIES = 20
"""Of a port that is free on one address of localhost and is to be free on the other one too."""
_GRACE = 2
"""Seconds that answers under way have when the server ends."""
_HEADER = 64 << 10


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address. A name other than ``localhost`` may be anything."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == LOCAL


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen. ``localhost`` is both addresses of it: else another user could take the one that is left.

    Port 0: any that is free. Raises ``HeldError`` where the port is in use, ``UsageError`` where there is no such
    address.
    """
    tries = 1 if port else _TRIES
    while True:
        tries -= 1
        found: list[socket.socket] = []
        try:
            for address in _BOTH if host == LOCAL else (host,):
                try:
                    found.append(_listen(address, found[0].getsockname()[1] if found else port))
                except OSError as error:
                    # A machine without IPv6 has no ::1.
                    if not found or error.errno == errno.EADDRINUSE:
                        raise
            return found
        except OSError as error:
            for one in found:
                one.close()
            if not tries or error.errno != errno.EADDRINUSE:
                raise _explained(host, port, error) from error


def _listen(address: str, port: int) -> socket.socket:
    family, kind, protocol, _, where = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(where)
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def _explained(host: str, port: int, error: OSError) -> Exception:
    if error.errno == errno.EADDRINUSE:
        return HeldError(
            f"port {port} of {host} is in use by another process; give another one, such as --port {_next(port)}, or "
            "--port 0 for any that is free"
        )
    if error.errno == errno.EACCES:
        return UsageError(f"port {port} of {host} may not be used: {error.strerror}; give one above 1023")
    return UsageError(f"{host} port {port}: {error.strerror or error}; --host is an address of this machine")


def _next(port: int) -> int:
    return port + 1 if 0 < port < 65535 else 6071


def address_of(host: str, port: int, token: str | None) -> str:
    """What a person opens."""
    shown = host
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        if address.is_unspecified:
            shown = socket.gethostname()
        elif address.version == 6:
            shown = f"[{host}]"
    return f"http://{shown}:{port}/" + (f"?token={token}" if token else "")


class Server(uvicorn.Server):
    """Serves until a signal comes; ``began`` is called when the first request can be made.

    ``connections``: by default as many as the process has descriptors for, of which it takes all that it may have.
    """

    def __init__(self, app: ASGIApp, began: Callable[[], None], connections: Connections | None = None) -> None:
        config = uvicorn.Config(
            app,
            # A warning is of requests that are none: whoever can connect could fill the log.
            log_level="error",
            access_log=False,
            server_header=False,
            date_header=False,
            # The address in the answer's log and in redirections is what the socket says, whatever a header claims.
            proxy_headers=False,
            lifespan="on",
            http=cast(type[asyncio.Protocol], connections or Connections(raise_limit())),
            backlog=_AT_ONCE,
            ws="none",
            h11_max_incomplete_event_size=_HEADER,
            timeout_graceful_shutdown=_GRACE,
        )
        super().__init__(config)
        self._began = began

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        asyncio.get_running_loop().set_exception_handler(Told(lambda line: print(f"fsrun: {line}", file=sys.stderr)))
        await super().startup(sockets)
        for one in sockets or ():
            # The system keeps more of them waiting than are taken at once.
            one.listen(_BACKLOG)
        if self.started:
            self._began()
