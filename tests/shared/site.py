"""A shared folder as a test sees it: three hosts, a root for runs, processes there, and the files that they left."""

from __future__ import annotations

import base64
import io
import itertools
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools.nfsbed.bed import Bed
from tools.nfsbed.remote import PATH, Process

SHARES = {"bindfs": ("/run/v0", "bindfs"), "nfs4.2": ("/run/v4", "nfs"), "nfs3": ("/run/v3", "nfs")}
REPO = Path(__file__).resolve().parents[2]
_numbers = itertools.count()


class Site:
    """Hosts A, B and C of a bed, and a root of their own for one test."""

    def __init__(self, bed: Bed, mount: str, here: Path, python: str) -> None:
        self.bed = bed
        self._name = f"test{next(_numbers)}"
        self.root = f"{mount}/{self._name}"
        self.run = f"{self.root}/p/r"
        self._mount = mount
        self._here = here
        self._python = python
        self._processes: list[Process] = []
        bed.hosts["A"].run("mkdir", self.root)
        self.offsets = {name: bed.hosts[name].offset() for name in bed.clients}

    def start(self, host: str, role: str, *arguments: object, arrow: bool = False) -> Process:
        """Start a role of ``jobs`` on a host. Without ``arrow`` no data.parquet is built, which takes seconds there."""
        env = {
            "PATH": PATH,
            "HOME": "/run/tmp",
            "TMPDIR": "/run/tmp",
            "FSRUN_SPILL": "/run/tmp",
            "XDG_RUNTIME_DIR": "/run/tmp",
            "FSRUN_CAPTURE": "0",
            "FSRUN_COMPACT": "1" if arrow else "0",
            "PYTHONPATH": str(REPO),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        words = [self._python, "-m", "tests.shared.jobs", role, *map(str, arguments)]
        process = self.bed.hosts[host].start(words, env, "/run/tmp")
        self._processes.append(process)
        return process

    def here(self, process: Process, moment: float) -> float:
        """A moment of a process's host on this machine's clock."""
        return moment + self.offsets[process.host.name][0]

    def moments(self, process: Process, event: str) -> list[tuple[float, Any]]:
        """When a process said an event, on this machine's clock, and with which value."""
        return [(self.here(process, said["at"]), said[event]) for said in list(process.said) if event in said]

    @property
    def slack(self) -> float:
        """How much a difference of moments on two hosts may be wrong."""
        return 2 * max(error for _, error in self.offsets.values())

    def names(self, folder: str, host: str = "C") -> list[str]:
        """A listing on a host."""
        return sorted(self.bed.hosts[host].run("ls", "-A", f"{self.run}/{folder}").split())

    def copy(self) -> Path:
        """The run, as the server has it, copied to this machine."""
        if "S" in self.bed.hosts:
            from tools.nfsbed.guest import EXPORT

            command = f"tar -C {EXPORT}/{self._name} -c p | base64"
            packed = base64.b64decode(self.bed.hosts["S"].run("sh", "-c", command))
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                archive.extractall(self._here / "copy", filter="fully_trusted")
            return self._here / "copy" / "p" / "r"
        return self.bed.folder / "share" / self._name / "p" / "r"

    def settle(self) -> None:
        """End what the test started, undo what it did to the hosts."""
        for process in self._processes:
            process.close()
        self.bed.heal()
        for name in ("S", *self.bed.clients) if "S" in self.bed.hosts else self.bed.clients:
            if name not in self.bed.trees:
                self.bed.start(name)


def owners(site: Site, processes: Iterable[Process]) -> list[tuple[float, float, int, str]]:
    """When each session was protected: first and last moment, session, host; in the order of the sessions."""
    found: dict[int, tuple[float, float, int, str]] = {}
    for process in processes:
        for at, session in site.moments(process, "protected"):
            first, last, _, host = found.get(session, (at, at, session, process.host.name))
            assert host == process.host.name, f"session {session} was held on two hosts"
            found[session] = (min(first, at), max(last, at), session, host)
    return [found[session] for session in sorted(found)]
