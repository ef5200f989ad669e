"""One folder through bindfs, mounted once a host with caches of 30 s: two and more caches on one machine, for every CI.

A host is a set of namespaces (processes, mounts, host name), so that none can prove another's process dead. Harsher
than NFS in one way (open does not revalidate the size), weaker in another (no retransmission, no ESTALE).
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

from . import space
from .agent import serve
from .bed import Bed, Unfit
from .remote import Host

CACHES = "entry_timeout=30,negative_timeout=30,attr_timeout=30"
MOUNT = "/run/v0"
_ADDRESSES = {"A": "127.0.1.2", "B": "127.0.1.3", "C": "127.0.1.4"}


class BindBed(Bed):
    """See the module. Each host sees the folder at ``/run/v0``."""

    kind = "bindfs"

    def require(self) -> None:
        super().require()
        if shutil.which("bindfs") is None:
            raise Unfit("no bindfs here (Debian: bindfs, fuse3)")
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            raise Unfit("no /dev/fuse")

    def up(self) -> None:
        self.require()
        (self.folder / "share").mkdir(exist_ok=True)
        self.make_network()
        for name in _ADDRESSES:
            self.start(name)

    def start(self, name: str) -> None:
        assert self.network is not None
        words = (sys.executable, "-m", __name__, name, _ADDRESSES[name], str(self.folder / "share"))
        root = Path(__file__).resolve().parents[2]
        with self.log(name) as log:
            self.trees[name] = space.Tree.start(
                space.host_argv(self.network, *words),
                tied=self.tied,
                log=log,
                env=os.environ | {"PYTHONPATH": str(root)},
            )
        self.hosts[name] = Host(name, self.network, _ADDRESSES[name])
        self.await_host(name, 20)
        self.hosts[name].run("mountpoint", "-q", MOUNT)
        self.save()

    def cut(self, name: str) -> None:
        self._signal(name, signal.SIGSTOP)

    def heal(self) -> None:
        for name in self.trees:
            self._signal(name, signal.SIGCONT)

    def restart_server(self) -> None:
        """There is no server: the folder hangs for all for a while, as it does while one restarts."""
        for name in self.trees:
            self.cut(name)
        time.sleep(3)
        self.heal()

    def _signal(self, name: str, number: int) -> None:
        # The first process of the host's namespaces is the agent, the first child of that is bindfs.
        for agent in space.children(self.trees[name].pid):
            os.kill(space.children(agent)[0], number)


def main(name: str, address: str, share: str) -> None:
    """The first process of a host: mount, then serve."""
    import ctypes
    import socket
    import subprocess

    socket.sethostname(name)
    subprocess.run(("mount", "-n", "-t", "tmpfs", "tmpfs", "/run"), check=True)
    os.mkdir("/run/tmp")
    os.mkdir(MOUNT)
    libc = ctypes.CDLL(None)
    bindfs = subprocess.Popen(
        ("bindfs", "-f", "-o", CACHES, share, MOUNT), preexec_fn=lambda: libc.prctl(1, signal.SIGKILL)
    )
    while not os.path.ismount(MOUNT):
        if bindfs.poll() is not None:
            raise OSError(f"bindfs ended with {bindfs.returncode}")
        time.sleep(0.02)
    serve(address)


if __name__ == "__main__":
    main(*sys.argv[1:])
