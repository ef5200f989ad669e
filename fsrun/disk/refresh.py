"""Sizes as whoever serves the folder has them now (protocol.md 8.1).

NFS asks the server at each open. A FUSE mount need not: for as long as its ``attr_timeout`` a fresh open may have the
size that the mount remembers, and reads end there, so that a log seems not to grow and a fence cuts off what is there.

Does: makes such a mount ask. Leaves to others: when (``fs``, after each open for reading).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache

_AT_EMPTY_PATH = 0x1000
_AT_STATX_FORCE_SYNC = 0x2000
_STATX_SIZE = 0x200
_STATX_BYTES = 256


def refresh(descriptor: int, device: int | None = None) -> None:
    """Make the size of an open file true where the mount may have made it up. Never raises.

    ``device``: its ``st_dev``, where that is known; elsewhere it takes one ``fstat``.
    """
    try:
        device = os.fstat(descriptor).st_dev if device is None else device
    except OSError:
        return
    ask = _asker() if _is_fuse(device) else None
    if ask is not None:
        ask(descriptor)


@cache
def _is_fuse(device: int) -> bool:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return fuse_mounted(device, file.read())
    except OSError:
        return False


def fuse_mounted(device: int, mountinfo: str) -> bool:
    """Whether a text like /proc/self/mountinfo says that ``device`` (``st_dev``) is a FUSE mount."""
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mountinfo.splitlines():
        facts, _, rest = line.partition(" - ")
        if facts.split(" ")[2:3] == [number]:
            kind = rest.split(" ", 1)[0]
            return kind in ("fuse", "fuseblk") or kind.startswith("fuse.")
    return False


@cache
def _asker() -> Callable[[int], None] | None:
    """``statx`` with the order to ask the server; None where the C library has none."""
    try:
        import ctypes

        statx = ctypes.CDLL(None).statx
    except (ImportError, OSError, AttributeError):
        return None

    def ask(descriptor: int) -> None:
        answer = ctypes.create_string_buffer(_STATX_BYTES)
        statx(descriptor, b"", _AT_EMPTY_PATH | _AT_STATX_FORCE_SYNC, _STATX_SIZE, answer)

    return ask
