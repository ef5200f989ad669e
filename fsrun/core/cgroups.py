"""What a control group allows a job and what it uses: CPU and memory, version 1 and 2, from the texts of the kernel.

Does: finds, among the group of a process and those around it, the one whose limit is the tightest, and reads it. Leaves
to others: reading files (``read`` is given: path to text, None where that cannot be read).

A container may show its groups under other paths than its processes see, so groups that are not there are passed over
and the top of the tree is always tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Read = Callable[[str], str | None]

ROOT = "/sys/fs/cgroup"


@dataclass(frozen=True, slots=True)
class Usage:
    """Limits and use of a group; None where there is no limit, or it cannot be read."""

    cpu_limit: float | None = None
    """Cores."""
    cpu_seconds: float | None = None
    """CPU time that the group has used since it was made."""
    memory_limit: int | None = None
    memory: int | None = None
    """Bytes in use without the file cache that the kernel would give up first."""


def groups(text: str) -> dict[str, str]:
    """Read /proc/PID/cgroup as controller -> path of the group; version 2 stands under the empty name."""
    found = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            found.update(dict.fromkeys(parts[1].split(","), parts[2]))
    return found


def folders(base: str, path: str) -> list[str]:
    """Folders of a group and of those around it, the innermost first."""
    parts = [part for part in path.split("/") if part and part != ".."]
    return ["/".join((base, *parts[:count])) for count in range(len(parts), -1, -1)]


def read_usage(text: str, read: Read, most_memory: int, root: str = ROOT) -> Usage:
    """Limits and use for the process whose /proc/PID/cgroup is ``text``, on a host with ``most_memory`` bytes."""
    found = groups(text)
    cpu_limit, cpu_seconds = _cpu(found, read, root)
    memory_limit, memory = _memory(found, read, most_memory, root)
    return Usage(cpu_limit=cpu_limit, cpu_seconds=cpu_seconds, memory_limit=memory_limit, memory=memory)


def _cpu(found: dict[str, str], read: Read, root: str) -> tuple[float | None, float | None]:
    second = "cpu" not in found
    limits = []
    for folder in folders(root if second else f"{root}/cpu", found.get("" if second else "cpu", "")):
        limit = _quota_2(read(f"{folder}/cpu.max")) if second else _quota_1(read, folder)
        if limit is not None:
            limits.append((limit, folder))
    if not limits:
        return None, None
    # Of groups with one limit the outer one counts: it is what the limit is about.
    limit, folder = min(reversed(limits), key=lambda pair: pair[0])
    if second:
        used = _named(read(f"{folder}/cpu.stat"), "usage_usec")
        return limit, None if used is None else used / 1e6
    used = _number(read(f"{root}/cpuacct{folder.removeprefix(f'{root}/cpu')}/cpuacct.usage"))
    return limit, None if used is None else used / 1e9


def _memory(found: dict[str, str], read: Read, most: int, root: str) -> tuple[int | None, int | None]:
    second = "memory" not in found
    base = root if second else f"{root}/memory"
    limit_name, use_name, cache_name = (
        ("memory.max", "memory.current", "inactive_file")
        if second
        else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    )
    limits = []
    for folder in folders(base, found.get("" if second else "memory", "")):
        limit = _number(read(f"{folder}/{limit_name}"))
        # "No limit" is a number near 2^63 in version 1.
        if limit is not None and 0 < limit < most:
            limits.append((limit, folder))
    if not limits:
        return None, None
    limit, folder = min(reversed(limits), key=lambda pair: pair[0])
    used = _number(read(f"{folder}/{use_name}"))
    if used is None:
        return limit, None
    return limit, max(0, used - (_named(read(f"{folder}/memory.stat"), cache_name) or 0))


def _quota_2(text: str | None) -> float | None:
    """Cores of ``cpu.max``, such as ``200000 100000``."""
    parts = (text or "").split()
    return _cores(_number(parts[0]), _number(parts[1])) if len(parts) == 2 else None


def _quota_1(read: Read, folder: str) -> float | None:
    quota = _number(read(f"{folder}/cpu.cfs_quota_us"))
    return None if quota is None else _cores(quota, _number(read(f"{folder}/cpu.cfs_period_us")))


def _cores(quota: int | None, period: int | None) -> float | None:
    return quota / period if quota and period and quota > 0 and period > 0 else None


def _number(text: str | None) -> int | None:
    try:
        number = int(text or "")
    except ValueError:
        return None
    return number if abs(number) < 1 << 64 else None


def _named(text: str | None, name: str) -> int | None:
    """The number behind ``name`` in a file of lines ``name number``."""
    for line in (text or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return _number(value)
    return None
