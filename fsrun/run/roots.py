"""Where runs stand, and which folder is one (protocol.md 2, 4.1): decided here for the library and all commands.

Imports little, since ``ls`` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from fsrun.core import layout
from fsrun.core.errors import UsageError
from fsrun.core.ids import MAIN
from fsrun.disk.fs import FileSystem

ROOT_VARIABLE = "FSRUN_ROOT"
FIRST_LOCK = layout.lock_name(MAIN, 1)


def resolve_root(root: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> str:
    """Return the absolute path of the folder of all runs: ``root``, else $FSRUN_ROOT, else ``./runs``; ``~`` is a home.

    Empty text counts as not given. Raises ``UsageError`` for a relative one where the working folder is gone.
    """
    given = None if root is None else os.fsdecode(root)
    text = given or (os.environ if environ is None else environ).get(ROOT_VARIABLE) or "runs"
    try:
        return os.path.abspath(os.path.expanduser(text))
    except OSError as error:
        raise UsageError(f"the root {text!r} is relative and the working folder is gone: {error}") from error


def list_jobs(fs: FileSystem, path: str, names: Iterable[str] | None = None) -> list[str] | None:
    """The listing of ``jobs/`` of a run folder; None where it is none: main was never opened there.

    ``names``: the listing of ``path``, where it is known. Nothing is looked up that a listing has not shown. Raises
    ``OSError`` where a listing fails in another way than that there is no such folder.
    """
    try:
        if layout.JOBS not in (fs.names(path) if names is None else names):
            return None
        listed = fs.names(f"{path}/{layout.JOBS}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    return listed if FIRST_LOCK in listed else None
