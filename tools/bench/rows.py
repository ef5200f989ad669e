"""Rows of numbers, and the turns in which they are measured: one tool after the other, each in a fresh process."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import environments


@dataclass(frozen=True)
class Settings:
    """Where to measure, how much of it, and with which tools (name -> its Python, fsrun first)."""

    folder: Path
    rounds: int
    quick: bool
    tools: dict[str, str] = field(default_factory=lambda: {"fsrun": sys.executable})

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
    absent: dict[str, str] = field(default_factory=dict)
    """Peers that have no number, and why."""
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

    def beside(self, tools: Iterable[str]) -> Row:
        """The row with some peers alone."""
        peers = {tool: self.peers[tool] for tool in tools if tool in self.peers}
        return replace(self, peers=peers, absent={tool: self.absent[tool] for tool in tools if tool in self.absent})

    @property
    def is_behind(self) -> bool:
        return any((self.ratio(peer) or 1.0) < 1.0 for peer in self.peers)

    def to_json(self) -> dict[str, Any]:
        ratios = {peer: self.ratio(peer) for peer in self.peers}
        value = None if math.isnan(self.value) else self.value
        return asdict(self) | {"value": value, "reached": self.reached, "ratios": ratios}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Row:
        known = {name: found[name] for name in cls.__dataclass_fields__}
        return cls(**known | {"value": math.nan if found["value"] is None else found["value"]})


@dataclass
class Measured:
    """What turns gave: the medians of each tool, and why a peer has none."""

    medians: dict[str, dict[str, float]]
    absent: dict[str, str]

    def row(
        self,
        group: str,
        what: str,
        key: str,
        unit: str,
        goal: float | None = None,
        *,
        scale: float = 1.0,
        more_is_better: bool = False,
        note: str = "",
    ) -> Row:
        """The row of one of the numbers that each tool gave."""
        found = {tool: numbers[key] * scale for tool, numbers in self.medians.items()}
        value = found.pop("fsrun")
        return Row(group, what, value, unit, goal, more_is_better, found, dict(self.absent), note)


def turns(settings: Settings, work: Callable[[str, int], dict[str, Any]], tools: Iterable[str] = ()) -> Measured:
    """Have each tool do its work once a round, in turns. A peer that cannot is left out of the rest; fsrun must."""
    results: dict[str, list[dict[str, Any]]] = {}
    absent: dict[str, str] = {}
    for turn in range(settings.rounds):
        for tool in tools or settings.tools:
            if tool in absent:
                continue
            try:
                results.setdefault(tool, []).append(work(tool, turn))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                if tool == "fsrun":
                    raise
                absent[tool] = environments.reason(error)
                results.pop(tool, None)
                print(f"bench: {tool} is left out: {absent[tool]}", file=sys.stderr, flush=True)
    return Measured({tool: medians(found) for tool, found in results.items()}, absent)


def child(
    module: str,
    work: str,
    *arguments: object,
    env: dict[str, str] | None = None,
    python: str = sys.executable,
    limit: float = 900.0,
) -> dict[str, Any]:
    """Run ``module.work(*arguments)`` of this folder in a fresh process; what it returns (JSON)."""
    command = child_command(module, work, *arguments, python=python)
    done = subprocess.run(
        command, env=os.environ | (env or {}), capture_output=True, text=True, check=False, timeout=limit
    )
    if done.returncode:
        raise RuntimeError(f"{module}.{work} failed:\n{done.stderr[-4000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def child_command(module: str, work: str, *arguments: object, python: str = sys.executable) -> list[str]:
    here = str(Path(__file__).parent)
    code = (
        f"import sys, json; sys.path[:0] = [{here!r}]; import {module}; "
        f"result = {module}.{work}(*json.loads(sys.argv[1])); print('\\n' + json.dumps(result), flush=True)"
    )
    return [python, "-c", code, json.dumps([str(a) if isinstance(a, Path) else a for a in arguments])]


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def medians(results: list[dict[str, Any]]) -> dict[str, float]:
    return {key: median(result[key] for result in results) for key in results[0]}
