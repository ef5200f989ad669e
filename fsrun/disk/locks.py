"""One process a host: a lock file in a folder of this host and user, never on a shared one.

Leaves to others: what the process does, and exclusion between hosts, which needs none (protocol.md 4).
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fsrun.core.errors import UsageError

if TYPE_CHECKING:
    from filelock import FileLock

RUNTIME_VARIABLE = "XDG_RUNTIME_DIR"


def runtime_folder(environ: Mapping[str, str]) -> str:
    """The folder of this user on this host for lock and status files; makes it.

    ``$XDG_RUNTIME_DIR/fsrun``, else ``fsrun-run-<uid>`` in the folder for temporary files. Raises ``UsageError`` where
    somebody else owns it.
    """
    given = environ.get(RUNTIME_VARIABLE)
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    path = f"{given}/fsrun" if given and os.path.isdir(given) else f"{tempfile.gettempdir()}/fsrun-run-{user}"
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise UsageError(f"cannot make {path}: {error.strerror}; set ${RUNTIME_VARIABLE}") from error
    facts = os.lstat(path)
    if not stat.S_ISDIR(facts.st_mode) or (hasattr(os, "getuid") and facts.st_uid != os.getuid()):
        raise UsageError(f"{path} belongs to another user; set ${RUNTIME_VARIABLE} to a folder of your own")
    return path


def local_name(root: str) -> str:
    """A file name that stands for a root on this host."""
    return hashlib.sha256(root.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def take(path: str) -> FileLock | None:
    """Take a lock file until the process ends; None where another process has it.

    After a crash: the file stands and nobody holds it.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, timeout=0, is_singleton=False, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        return None
    return lock


def is_taken(path: str) -> bool:
    """Whether a process holds a lock file."""
    if not os.path.exists(path):
        return False
    lock = take(path)
    if lock is None:
        return True
    lock.release()
    return False
