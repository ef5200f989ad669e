"""The table for people: on what machine it was measured, how it is written, and how README.md is renewed.

README.md takes the rows that have a number to reach or a peer, beside the default peers; docs/numbers.md takes all.
"""

from __future__ import annotations

import math
import os
import platform
import re
from pathlib import Path
from typing import Any

import environments
import reasons
from rows import Row

BEGIN = "<!-- bench: begin -->"
END = "<!-- bench: end -->"


def facts(folder: Path, versions: dict[str, str], date: str) -> dict[str, Any]:
    """The machine, its load, and the versions, in a few words."""
    try:
        cpu = re.findall(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())[0]
    except (OSError, IndexError):
        cpu = platform.processor()
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "load": [round(x, 1) for x in os.getloadavg()],
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "file system": _file_system(folder),
        "date": date,
        "versions": versions,
    }


def _file_system(folder: Path) -> str:
    best = ("", "unknown")
    path = str(folder.resolve())
    try:
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, point, kind = line.split()[:3]
            if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(best[0]):
                best = (point, kind)
    except (OSError, ValueError):
        pass
    return best[1]


def markdown(rows: list[Row], machines: list[dict[str, Any]]) -> str:
    """A table for people, with the machine under it, and what could not be measured."""
    peers = [peer for peer in environments.LABELS if any(peer in row.peers or peer in row.absent for row in rows)]
    head = ["what", "fsrun", "to reach", *(environments.LABELS[peer] for peer in peers)]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            lines.append(f"| **{group}** |{' |' * (len(head) - 1)}")
        lines.append(f"| {' | '.join(_cells(row, peers))} |")
    lines += ["", *(_under(machine) for machine in machines)]
    if said := _not_measured(rows):
        lines += ["", "Not measured: " + "; ".join(said) + "."]
    if said := reasons.said_under(rows):
        lines += ["", "Behind a peer (ratios under 1), or **missed**, and why:", "", *said]
    return "\n".join(lines)


def _cells(row: Row, peers: list[str]) -> list[str]:
    sign = "at least " if row.more_is_better else "at most "
    missed = " **missed**" if row.reached is False else ""
    goal = "" if row.goal is None else f"{sign}{number(row.goal)}{missed}"
    cells = [f"{row.what}{f' ({row.note})' if row.note else ''}", f"{number(row.value)} {row.unit}".strip(), goal]
    for peer in peers:
        ratio = row.ratio(peer)
        if ratio is None:
            cells.append("not measured" if peer in row.absent else "")
        else:
            times = f"{number(ratio)}x"
            cells.append(f"{number(row.peers[peer])} ({times if ratio >= 1 else f'**{times}**'})")
    return cells


def _not_measured(rows: list[Row]) -> list[str]:
    why: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for peer, reason in row.absent.items():
            groups = why.setdefault((peer, reason), [])
            if row.group not in groups:
                groups.append(row.group)
    return [f"{environments.LABELS[peer]} ({', '.join(groups)}): {reason}" for (peer, reason), groups in why.items()]


def _under(machine: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    load = ", ".join(map(str, machine["load"]))
    where = f"{machine['cpu']}, {machine['cores']} cores, load {load}; {machine['system']}, {machine['file system']}"
    kind = ", a quick run" if machine["quick"] else ""
    return f"{machine['date']}{kind}: {machine['groups']}; {where}; Python {machine['python']}; {versions}."


def number(value: float) -> str:
    """Three digits that matter; nothing for what was not measured."""
    if math.isnan(value):
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def renew(path: Path, table: str) -> None:
    """Put the table between the two marks of a file, or at its end where there are none."""
    text = path.read_text(encoding="utf-8")
    block = f"{BEGIN}\n{table}\n{END}"
    if BEGIN in text and END in text:
        before, _, rest = text.partition(BEGIN)
        text = before + block + rest.partition(END)[2]
    else:
        text = f"{text.rstrip()}\n\n## Numbers\n\n{block}\n"
    path.write_text(text, encoding="utf-8")
