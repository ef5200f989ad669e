"""What a daemon tells of itself: a JSON file beside its lock, in a folder of this host and user.

Reading it touches no root, so that it answers while a mount hangs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fsrun.core import codec
from fsrun.disk import locks

_LOCK, _STATUS = ".lock", ".status.json"


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The two files of the daemon of one root on this host."""

    folder: str
    root: str

    @property
    def lock(self) -> str:
        """Path of the lock file."""
        return f"{self.folder}/{locks.local_name(self.root)}{_LOCK}"

    @property
    def status(self) -> str:
        """Path of the status file."""
        return f"{self.folder}/{locks.local_name(self.root)}{_STATUS}"

    def write(self, facts: Mapping[str, Any]) -> None:
        """Replace the status. After a crash: the old one or the new one. Raises ``OSError``."""
        temp = f"{self.status}.{os.getpid()}.tmp"
        try:
            with open(temp, "w", encoding="utf-8") as file:
                json.dump(facts, file, indent=2)
                file.write("\n")
            os.replace(temp, self.status)
        except OSError:
            with suppress(OSError):
                os.unlink(temp)
            raise


def read_all(folder: str, root: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the status of every daemon of this user on this host, with ``running``; of one root, if it is given."""
    for lock, facts in _read(folder, root):
        yield {"running": locks.is_taken(lock)} | facts


def running(folder: str, root: str) -> dict[str, Any] | None:
    """The status of the daemon that runs on this host for this user and root; for those who ask again and again.

    Whether a lock is held is found by taking it: that is done only where the process of the status is there, so that a
    daemon that starts meanwhile never finds its lock taken by a question.
    """
    for lock, facts in _read(folder, root):
        pid = facts.get("pid")
        if isinstance(pid, int) and pid > 0 and _is_there(pid) and locks.is_taken(lock):
            return facts
    return None


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _read(folder: str, root: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (lock file, status) of every daemon that left one."""
    for name in sorted(os.listdir(folder)):
        if not name.endswith(_STATUS):
            continue
        try:
            with open(f"{folder}/{name}", "rb") as file:
                facts = codec.loads(file.read(codec.MAX_RECORD))
        except (OSError, ValueError):
            continue
        if isinstance(facts, dict) and root in (None, facts.get("root"), facts.get("given")):
            yield f"{folder}/{name[: -len(_STATUS)]}{_LOCK}", facts
