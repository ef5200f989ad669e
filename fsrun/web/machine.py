"""Samples of the machines of one run in memory, brought up to date with what was measured since (protocol.md 6.13).

Leaves to others: what a line says (``core.system``), reducing (``reduce``).
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fsrun.core import layout
from fsrun.core.ids import is_job, parse_number
from fsrun.core.scalars import read_sessions
from fsrun.core.system import parse_samples
from fsrun.disk.fs import FileSystem
from fsrun.run.load import Loader, list_folder
from fsrun.web.held import Identity, identity_of
from fsrun.web.reduce import Array


class Figure(NamedTuple):
    """One figure of one job. A gap stands between two sessions."""

    name: str
    job: str
    host: str
    times: Array
    values: Array


@dataclass(slots=True)
class _Log:
    position: int = 0
    figures: dict[str, tuple[array[float], array[float]]] = field(default_factory=dict)


class Machine:
    """The figures of one run. Not for several threads at once: take ``busy``."""

    tags = None

    def __init__(self, fs: FileSystem, run_path: str) -> None:
        self.busy = threading.Lock()
        self.version = 0
        self._loader = Loader(fs, run_path)
        self._known: Identity | None = None
        self._hosts: dict[tuple[str, int], str] = {}
        self._fences: dict[tuple[str, int], dict[str, int]] = {}
        self._logs: dict[tuple[str, int], _Log] = {}

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return sum(16 * len(times) + 500 for log in self._logs.values() for times, _ in log.figures.values()) + 1000

    def refresh(self) -> None:
        """Bring all up to date. Raises ``OSError`` where the run cannot be read."""
        loader = self._loader
        names = list_folder(loader.fs, loader.path(layout.JOBS))
        known = identity_of(loader.fs, loader.run_dir)
        if known != self._known:
            # A new session says how much of the log before it counts.
            locks = loader.locks(names)
            self._fences = {key: dict(fence) for key, fence in read_sessions(locks).fences.items()}
            self._hosts = {(lock.job, lock.session): str(lock.holder.get("host", "")) for lock in locks}
            self._logs = {}
            self._known = known
        for job in sorted(filter(is_job, list_folder(loader.fs, loader.path(layout.SYSTEM)))):
            for name in list_folder(loader.fs, loader.path(layout.SYSTEM, job)):
                number = parse_number(name.removesuffix(".jsonl")) if name.endswith(".jsonl") else None
                if number:
                    self._read(job, number)

    def _read(self, job: str, session: int) -> None:
        path = f"{layout.SYSTEM}/{job}/{layout.system_name(session)}"
        fence = self._fences.get((job, session))
        stop = None if fence is None else fence.get(path, 0)
        log = self._logs.setdefault((job, session), _Log())
        if stop is not None and stop <= log.position:
            return
        for data in self._loader.lines(path, log.position, stop):
            for sample in parse_samples(data)[0]:
                for name, value in sample.values.items():
                    times, values = log.figures.setdefault(name, (array("d"), array("d")))
                    times.append(sample.time)
                    values.append(float(value))
            log.position += len(data)
            self.version += 1

    def figures(self, job: str | None = None) -> Iterator[Figure]:
        """All figures, or those of one job; sorted by name and job."""
        found: dict[tuple[str, str], list[int]] = {}
        for owner, session in sorted(self._logs):
            if job in (None, owner):
                for name in self._logs[owner, session].figures:
                    found.setdefault((name, owner), []).append(session)
        for (name, owner), sessions in sorted(found.items()):
            times: list[Array] = []
            values: list[Array] = []
            for session in sessions:
                stamps, numbers = self._logs[owner, session].figures[name]
                if times:
                    times.append(np.array([stamps[0]]))
                    values.append(np.array([np.nan]))
                # Copies: an array that lends its memory cannot grow.
                times.append(np.array(stamps))
                values.append(np.array(numbers))
            host = self._hosts.get((owner, sessions[-1]), "")
            yield Figure(name, owner, host, np.concatenate(times), np.concatenate(values))
