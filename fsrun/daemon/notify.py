"""Tells systemd that the daemon is ready, lives, or stops: one datagram a word to ``$NOTIFY_SOCKET``."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


class Notifier:
    """Does nothing where no service manager asked for it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET") or ""
        watched = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        text = environ.get("WATCHDOG_USEC", "") if watched else ""
        self.interval = int(text) / 2e6 if text.isdigit() and int(text) > 0 else None
        """Seconds after which to say that the daemon lives; None: nobody asks."""

    def tell(self, text: str) -> None:
        """Send one message; what fails is not worth a word."""
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.setblocking(False)
                channel.sendto(text.encode(), address)
        except OSError:
            return
