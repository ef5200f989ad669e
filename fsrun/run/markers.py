"""Markers of live runs in ``<root>/.live/`` (protocol.md 2): hints that spare a daemon the listing of all runs.

A marker states nothing. One that is missing costs a daemon the time until its next sweep, one that is left over a
listing. So nothing here raises.
"""

from __future__ import annotations

from contextlib import suppress

from fsrun.core import layout
from fsrun.disk.fs import FileSystem
from fsrun.run.compact import all_closed


def marker_of(root: str, run_dir: str) -> str | None:
    """Name of a run's marker; None where it can have none: it stands elsewhere than ``<root>/<project>/<run>``."""
    below, slash, run = run_dir.removeprefix(f"{root}/").partition("/")
    if not run_dir.startswith(f"{root}/") or not slash or "/" in run:
        return None
    name = layout.marker_name(below, run)
    return name if name is not None and layout.parse_marker_name(name) == (below, run) else None


def set_marker(fs: FileSystem, root: str, run_dir: str) -> bool:
    """Make the marker of a run; True where it stands. After a crash: it stands or not."""
    name = marker_of(root, run_dir)
    if name is None:
        return False
    folder = f"{root}/{layout.LIVE}"
    for _ in range(2):
        try:
            fs.create(f"{folder}/{name}", b"")
        except FileExistsError:
            return True
        except FileNotFoundError:
            with suppress(OSError):
                fs.mkdir(folder)
            continue
        except OSError:
            return False
        return True
    return False


def clear_marker(fs: FileSystem, root: str, run_dir: str) -> None:
    """Remove the marker of a run whose jobs have all ended; a job that is opened meanwhile keeps it.

    After a crash: it stands or not; where it is gone although a job was opened, the next sweep finds that.
    """
    name = marker_of(root, run_dir)
    if name is None:
        return
    with suppress(OSError):
        fs.unlink(f"{root}/{layout.LIVE}/{name}")
        # An opener that found the marker before it was removed has put its lock by now, or will make it itself.
        if not all_closed(run_dir, fs):
            set_marker(fs, root, run_dir)
