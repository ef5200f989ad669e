"""Rows of numbers: how they are kept, printed and written into the README; and on what machine they were measured."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

BEGIN = "<!-- bench: begin -->"
END = "<!-- bench: end -->"
PEERS = ("trackio", "tensorboardX")


@dataclass(frozen=True)
class Settings:
    """Where to measure, and how much of it."""

    folder: Path
    rounds: int
    quick: bool

    def points(self, full: int) -> int:
        return full // 10 if self.quick else full


@dataclass
class Row:
    """One number with its unit, the one it has to reach, and those of the peers (same unit)."""

    group: str
    what: str
    value: float
    unit: str
    goal: float | None = None
    more_is_better: bool = False
    peers: dict[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def reached(self) -> bool | None:
        if self.goal is None or math.isnan(self.value):
            return None
        return self.value >= self.goal if self.more_is_better else self.value <= self.goal

    def ratio(self, peer: str) -> float | None:
        """How many times better than a peer."""
        other = self.peers.get(peer)
        if not other or not self.value:
            return None
        return self.value / other if self.more_is_better else other / self.value

    def to_json(self) -> dict[str, Any]:
        ratios = {peer: self.ratio(peer) for peer in self.peers}
        value = None if math.isnan(self.value) else self.value
        return asdict(self) | {"value": value, "reached": self.reached, "ratios": ratios}


def child(module: str, work: str, *arguments: object, env: dict[str, str] | None = None) -> dict[str, Any]:
    """Run ``module.work(*arguments)`` of this folder in a fresh process; what it returns (JSON)."""
    here = str(Path(__file__).parent)
    code = (
        f"import sys, json; sys.path[:0] = [{here!r}]; import {module}; "
        f"result = {module}.{work}(*json.loads(sys.argv[1])); print('\\n' + json.dumps(result), flush=True)"
    )
    command = [sys.executable, "-c", code, json.dumps([str(a) if isinstance(a, Path) else a for a in arguments])]
    done = subprocess.run(command, env=os.environ | (env or {}), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{module}.{work} failed:\n{done.stderr[-4000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def installed_peers() -> list[str]:
    found = []
    for name in PEERS:
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        found.append(name)
    return found


def medians(results: list[dict[str, Any]]) -> dict[str, float]:
    return {key: median(result[key] for result in results) for key in results[0]}


def facts(folder: Path) -> dict[str, Any]:
    """The machine, its load, and the versions, in a few words."""
    cpu = ""
    try:
        cpu = re.findall(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())[0]
    except (OSError, IndexError):
        cpu = platform.processor()
    versions = {}
    for name in ("fsrun", "orjson", "pyarrow", *PEERS):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "load": [round(x, 1) for x in os.getloadavg()],
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "file system": _file_system(folder),
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


def markdown(rows: list[Row], machine: dict[str, Any]) -> str:
    """A table for people, with the machine under it."""
    peers = [peer for peer in PEERS if any(peer in row.peers for row in rows)]
    head = ["what", "fsrun", "to reach", *peers]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        sign = ">=" if row.more_is_better else "<="
        missed = " **missed**" if row.reached is False else ""
        goal = "" if row.goal is None else f"{sign} {number(row.goal)}{missed}"
        cells = [f"{row.what}{f' ({row.note})' if row.note else ''}", f"{number(row.value)} {row.unit}", goal]
        for peer in peers:
            ratio = row.ratio(peer)
            cells.append("" if ratio is None else f"{number(row.peers[peer])} ({number(ratio)}x)")
        lines.append(f"| {' | '.join(cells)} |")
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    load = ", ".join(map(str, machine["load"]))
    where = f"{machine['cpu']}, {machine['cores']} cores, load {load}; {machine['system']}, {machine['file system']}"
    with_what = f"Python {machine['python']}; {versions}. Medians; peers measured in turns with fsrun."
    lines += ["", f"{where}; {with_what}"]
    return "\n".join(lines)


def number(value: float) -> str:
    """Three digits that matter; nothing for what was not measured."""
    if math.isnan(value):
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def renew(readme: Path, table: str) -> None:
    """Put the table between the two marks of the README, or at its end where there are none."""
    text = readme.read_text(encoding="utf-8")
    block = f"{BEGIN}\n{table}\n{END}"
    if BEGIN in text and END in text:
        before, _, rest = text.partition(BEGIN)
        text = before + block + rest.partition(END)[2]
    else:
        text = f"{text.rstrip()}\n\n## Numbers\n\n{block}\n"
    readme.write_text(text, encoding="utf-8")
