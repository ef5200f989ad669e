"""What both beds have in common: hosts A, B and C that see one folder, their power, and what cannot run here."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import IO

from . import space
from .remote import Host


class Unfit(Exception):
    """This machine cannot run the bed; the message says what is missing."""


class Bed:
    """A private network with hosts. A context manager: whatever happens, it is down afterwards.

    ``folder``: where it keeps its state; None: a new one, removed with it. ``tied``: it ends with this process even
    where that is killed; False: it goes on until ``down``, also by another process that gives the same folder.
    """

    kind = ""
    clients = ("A", "B", "C")

    def __init__(self, folder: str | None = None, *, tied: bool = True) -> None:
        self._made = folder is None
        self.folder = Path(folder or tempfile.mkdtemp(prefix=f"fsrun-{self.kind}-", dir="/tmp")).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tied = tied
        self.network: space.Tree | None = None
        self.trees: dict[str, space.Tree] = {}
        self.hosts: dict[str, Host] = {}

    # ---- what a bed does

    def require(self) -> None:
        """Raise ``Unfit`` where the bed cannot run here."""
        if os.geteuid() != 0:
            raise Unfit("it needs root")
        missing = [tool for tool in ("unshare", "nsenter", "setpriv", "ip") if shutil.which(tool) is None]
        if missing:
            raise Unfit(f"no {', '.join(missing)} here (Debian: util-linux, iproute2)")

    def up(self) -> None:
        """Bring everything up; returns when all hosts see the folder."""
        raise NotImplementedError

    def start(self, name: str) -> None:
        """Power a host on; returns when it answers and sees the folder."""
        raise NotImplementedError

    def cut(self, name: str) -> None:
        """Cut a host off from the folder: what it does there hangs."""
        raise NotImplementedError

    def heal(self) -> None:
        """Undo every ``cut``."""
        raise NotImplementedError

    def restart_server(self) -> None:
        """Let what serves the folder fail and come back."""
        raise NotImplementedError

    # ---- the same for all

    def off(self, name: str) -> None:
        """Power a host off: nothing on it gets to run again."""
        if name in self.trees:
            self.trees.pop(name).kill()
        if name in self.hosts:
            self.hosts[name].hang_up()
        self.save()

    def down(self) -> None:
        """End every process, and with them mounts and network; remove the folder where it was made for this."""
        for name in list(self.trees):
            self.off(name)
        if self.network is not None:
            self.network.kill()
            self.network = None
        (self.folder / "bed.json").unlink(missing_ok=True)
        if self._made:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Bed:
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    # ---- for those who build on it

    def log(self, name: str) -> IO[bytes]:
        return (self.folder / f"{name}.log").open("wb")

    def make_network(self) -> space.Tree:
        with self.log("network") as log:
            self.network = space.make_network(tied=self.tied, log=log)
        space.inside(self.network, "ip", "link", "set", "lo", "up")
        return self.network

    def await_host(self, name: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self.hosts[name].answers():
            said = (self.folder / f"{name}.log").read_text(errors="replace")
            if not self.trees[name].alive() or "Kernel panic" in said or time.monotonic() > deadline:
                raise OSError(f"host {name} did not come up: {said.partition('Kernel panic')[0][-2000:]}")
            time.sleep(0.1)

    def save(self) -> None:
        """Write down what another process needs to find the bed."""
        if self.network is None:
            return
        state = {
            "kind": self.kind,
            "network": [self.network.pid, self.network.born],
            "trees": {name: [tree.pid, tree.born] for name, tree in self.trees.items()},
            "hosts": {name: host.address for name, host in self.hosts.items()},
        }
        (self.folder / "bed.json").write_text(json.dumps(state))

    def load(self) -> bool:
        """Find a bed that another process brought up; False where there is none."""
        try:
            state = json.loads((self.folder / "bed.json").read_text())
        except FileNotFoundError:
            return False
        self.network = space.Tree(*state["network"])
        self.trees = {name: space.Tree(*tree) for name, tree in state["trees"].items()}
        self.hosts = {name: Host(name, self.network, address) for name, address in state["hosts"].items()}
        return True
