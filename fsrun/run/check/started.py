"""Checks of what sessions started from (protocol.md 6.14)."""

from __future__ import annotations

from fsrun.core import layout
from fsrun.disk.store import read_record
from fsrun.run.check.finding import Picture

_NEEDED = ("protocol", "job", "session", "recorded", "host", "command")


def check_started(picture: Picture, folders: set[str]) -> None:
    """Check every ``files/<job>.<n>.environment.json``."""
    for name in sorted(picture.store.names(layout.FILES)) if layout.FILES in folders else ():
        owner = layout.parse_environment_name(name)
        if owner is None:
            continue
        file = f"{layout.FILES}/{name}"
        if not picture.was_opened(*owner):
            message = f"session {owner[1]} of job {owner[0]} was never opened"
            picture.report("error", file, "4", message, "its lock is gone; without it no reader knows the job")
        try:
            record = read_record(picture.fs, picture.store.path(file))
        except OSError as error:
            picture.report("error", file, "6", f"cannot be read: {error.strerror}", "make it readable")
            continue
        if record is None:
            picture.report("error", file, "6", "is no whole record", "restore it from a copy")
            continue
        blame = "whoever wrote it does not follow protocol.md 6.14"
        missing = [key for key in _NEEDED if key not in record]
        if missing:
            picture.report("error", file, "6.14", f"lacks {', '.join(missing)}", blame)
        elif (record["job"], record["session"]) != owner:
            said = f"says job {record['job']!r:.60}, session {record['session']!r:.20}"
            picture.report("error", file, "6.14", said, blame)
