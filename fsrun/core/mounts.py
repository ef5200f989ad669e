"""What the system says of the mount that a path is on: the text of /proc/self/mountinfo, read.

Leaves to others: getting the text and the real path, and what follows from kind and options (``fitness``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount. ``kind``: as the system names it (``nfs4``, ``fuse.sshfs``); ``options``: a value, or "" for none."""

    point: str
    kind: str
    source: str
    options: dict[str, str] = field(default_factory=dict)


def find_mount(mountinfo: str, path: str) -> Mount | None:
    """The mount that the real, absolute ``path`` is on: of the deepest mount points the last; None where none fits."""
    found: Mount | None = None
    for line in mountinfo.splitlines():
        mount = _parse(line)
        if mount is None or not _is_below(path, mount.point):
            continue
        if found is None or len(mount.point) >= len(found.point):
            found = mount
    return found


def _parse(line: str) -> Mount | None:
    facts, dash, rest = line.partition(" - ")
    own, system = facts.split(" "), rest.split(" ")
    if not dash or len(own) < 6 or len(system) < 3:
        return None
    options: dict[str, str] = {}
    for text in (*system[2].split(","), *own[5].split(",")):
        name, _, value = text.partition("=")
        options[name] = value
    return Mount(_plain(own[4]), system[0], _plain(system[1]), options)


def _plain(text: str) -> str:
    return _OCTAL.sub(lambda found: chr(int(found.group(1), 8)), text)


def _is_below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")
