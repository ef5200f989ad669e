"""What one process of a host does for all: the first that takes a duty has it until it ends.

A duty is a name in the kernel (an abstract socket), so nothing is written anywhere, and a process that is killed leaves
nothing behind. It is known within one network namespace: containers with networks of their own each have their own.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import weakref
from contextlib import suppress


class Duty:
    """Something that one process a host is to do, such as measuring the host for a run; ``name``: any text."""

    __slots__ = ("__weakref__", "_address", "_open", "_socket")

    def __init__(self, name: str) -> None:
        self._address = b"\0fsrun-" + hashlib.sha256(os.fsencode(name)).hexdigest()[:32].encode()
        self._socket: socket.socket | None = None
        self._open = False
        _DUTIES.add(self)

    def take(self) -> bool:
        """Whether this process has the duty, now or from before. True also where a system knows no such names.

        After a crash: the next one that asks has it.
        """
        if self._socket is not None or self._open:
            return True
        try:
            found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        except (OSError, AttributeError):
            self._open = True
            return True
        try:
            found.bind(self._address)
        except OSError as error:
            found.close()
            # Done twice is better than by nobody.
            self._open = error.errno != errno.EADDRINUSE
            return self._open
        self._socket = found
        return True

    def leave(self) -> None:
        """Let another process have it."""
        found, self._socket = self._socket, None
        if found is not None:
            with suppress(OSError):
                found.close()


_DUTIES: weakref.WeakSet[Duty] = weakref.WeakSet()


def _leave_all() -> None:
    """A forked child may outlive the process that has the duty, and would keep it."""
    for duty in list(_DUTIES):
        duty.leave()


os.register_at_fork(after_in_child=_leave_all)
