"""A real kernel NFS server (host S) and three real kernel NFS clients (A, B, C), as User-Mode Linux.

Each client has the export at /run/v4 (NFS 4.2) and /run/v3, with default mount options. Each host has this machine's
files as its root, read-only, so that a Python environment made here runs there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from . import space
from .bed import Bed, Unfit
from .remote import Host

PACKAGES = (
    *("user-mode-linux", "nfs-kernel-server", "nfs-common", "rpcbind"),
    *("kmod", "iproute2", "nftables", "e2fsprogs", "util-linux"),
)
_TOOLS = {
    "linux.uml": "user-mode-linux",
    "rpc.nfsd": "nfs-kernel-server",
    "mount.nfs": "nfs-common",
    "rpcbind": "rpcbind",
    "modprobe": "kmod",
    "ip": "iproute2",
    "nft": "nftables",
    "mkfs.ext4": "e2fsprogs",
}
_MODULES = Path("/usr/lib/uml/modules")
_ADDRESSES = {"S": "10.99.0.1", "A": "10.99.0.2", "B": "10.99.0.3", "C": "10.99.0.4"}
_TABLE = "fsrun"
_POLICY = Path("/usr/sbin/policy-rc.d")
_DISK = 1 << 30


def _which(tool: str) -> str | None:
    return shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _needs_xstate() -> bool:
    """Whether this CPU has more register state than User-Mode Linux knows; see ``xstate.c``."""
    return re.search(r"\bamx_tile\b", Path("/proc/cpuinfo").read_text()) is not None


def missing() -> dict[str, str]:
    """Tools that are not here, and the Debian packages that have them."""
    tools = _TOOLS | ({"cc": "gcc libc6-dev"} if _needs_xstate() else {})
    found = {tool: package for tool, package in tools.items() if _which(tool) is None}
    return found if found or _MODULES.is_dir() else {"UML kernel modules": "user-mode-linux"}


def setup() -> str:
    """Install what is missing through apt-get, without starting a service on this machine; says what was done."""
    lacking = missing()
    if not lacking:
        return "all there"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Unfit(
            f"{', '.join(lacking)} missing; install {' '.join(sorted(set(lacking.values())))} (needs root, apt-get)"
        )
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    ours = not _POLICY.exists()
    if ours:
        _POLICY.write_text("#!/bin/sh\nexit 101\n")
        _POLICY.chmod(0o755)
    try:
        compiler = lacking.get("cc", "").split()
        for words in (("update",), ("install", "-y", "--no-install-recommends", *PACKAGES, *compiler)):
            done = subprocess.run(("apt-get", "-qq", *words), env=env, capture_output=True, text=True, timeout=600)
            if done.returncode:
                raise Unfit(f"apt-get {words[0]} failed: {done.stderr.strip()[-500:]}")
    finally:
        if ours:
            _POLICY.unlink()
    if missing():
        raise Unfit(f"still missing after apt-get: {', '.join(missing())}")
    return f"installed {' '.join(sorted(set(lacking.values())))}"


class NfsBed(Bed):
    """See the module. ``lease``: lease and grace of the v4 server, in seconds."""

    kind = "nfs"

    def __init__(self, folder: str | None = None, *, tied: bool = True, lease: int = 10, memory: int = 256) -> None:
        super().__init__(folder, tied=tied)
        self.lease = lease
        self.memory = memory

    def require(self) -> None:
        super().require()
        lacking = missing()
        if lacking:
            packages = " ".join(sorted(set(lacking.values())))
            raise Unfit(f"no {', '.join(lacking)} here: run tools/nfsbed setup, or install {packages}")
        if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
            raise Unfit("no /dev/net/tun (tap devices)")
        for path in (sys.executable, str(self.folder), __file__):
            if any(c.isspace() for c in path):
                raise Unfit(f"a blank in {path!r}: the kernel's command line cannot say it")

    def up(self) -> None:
        self.require()
        modules = self.folder / "kmod" / "lib"
        modules.mkdir(parents=True, exist_ok=True)
        if not (modules / "modules").exists():
            (modules / "modules").symlink_to(_MODULES)
        if _needs_xstate():
            self._compile_xstate()
        self._make_disk()
        self._make_bridge()
        for name in _ADDRESSES:
            self._boot(name)
        for name in _ADDRESSES:
            self.await_host(name, 60)
        for name in self.clients:
            self._mount(name)
        self.save()

    def start(self, name: str) -> None:
        self._boot(name)
        self.await_host(name, 60)
        if name in self.clients:
            self._mount(name)
        self.save()

    def cut(self, name: str) -> None:
        for side in ("iifname", "oifname"):
            self._inside("nft", "add", "rule", "bridge", _TABLE, "forward", side, f"tap{name}", "drop")

    def lose_replies(self, name: str) -> None:
        """Until ``heal``: what a host asks the server for is done, and no answer comes back.

        Bare acknowledgements pass, or TCP would send nothing more after the first call.
        """
        words = ("oifname", f"tap{name}", "ip", "protocol", "tcp", "ip", "length", ">", "100", "drop")
        self._inside("nft", "add", "rule", "bridge", _TABLE, "forward", *words)

    def heal(self) -> None:
        self._inside("nft", "flush", "chain", "bridge", _TABLE, "forward")

    def restart_server(self) -> None:
        """Power the server off and on again."""
        self.off("S")
        self.start("S")

    def _inside(self, *argv: str) -> str:
        assert self.network is not None
        return space.inside(self.network, *argv)

    def _compile_xstate(self) -> None:
        source = Path(__file__).resolve().with_name("xstate.c")
        library = self.folder / "xstate.so"
        words = ("cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl")
        made = subprocess.run(words, capture_output=True, text=True)
        if made.returncode:
            raise Unfit(
                f"{source.name}, which User-Mode Linux needs on this CPU, cannot be compiled: {made.stderr[-500:]}"
            )

    def _make_disk(self) -> None:
        disk = self.folder / "disk"
        if not disk.exists():
            with disk.open("wb") as file:
                file.truncate(_DISK)
            made = subprocess.run(("mkfs.ext4", "-qF", str(disk)), capture_output=True, text=True)
            if made.returncode:
                disk.unlink()
                raise OSError(f"mkfs.ext4: {made.stderr.strip()}")

    def _make_bridge(self) -> None:
        self.make_network()
        try:
            self._inside("ip", "link", "add", "br0", "type", "bridge")
            self._inside("ip", "addr", "add", "10.99.0.254/24", "dev", "br0")
            self._inside("ip", "link", "set", "br0", "up")
            for name in _ADDRESSES:
                self._inside("ip", "tuntap", "add", f"tap{name}", "mode", "tap")
                self._inside("ip", "link", "set", f"tap{name}", "master", "br0")
                self._inside("ip", "link", "set", f"tap{name}", "up")
            self._inside("nft", "add", "table", "bridge", _TABLE)
            hook = "{ type filter hook forward priority 0; }"
            self._inside("nft", "add", "chain", "bridge", _TABLE, "forward", hook)
        except OSError as error:
            raise Unfit(f"no bridge, tap or nft rules in a network namespace here: {error}") from error

    def _boot(self, name: str) -> None:
        assert self.network is not None
        address = _ADDRESSES[name]
        server = name == "S"
        here = Path(__file__).resolve().parent
        kernel = [
            *("linux.uml", f"mem={self.memory}M", f"umid={name}", f"uml_dir={self.folder}/uml"),
            *(
                "root=/dev/root",
                "rootfstype=hostfs",
                "rootflags=/",
                "ro",
                "quiet",
                "noreboot",
                "con=null",
                "con0=null,fd:1",
            ),
            # Without gro=1 bulk transfers stall for minutes.
            f"vec0:transport=tap,ifname=tap{name},mac=02:00:00:00:00:0{address[-1]},depth=64,gro=1",
            *([f"ubd0={self.folder}/disk"] if server else []),
            *(f"init={sys.executable}", "--", str(here / "guest.py")),
            *("server" if server else "client", name, address, str(self.folder / "kmod"), str(self.lease)),
        ]
        if (self.folder / "xstate.so").exists():
            kernel = ["env", f"LD_PRELOAD={self.folder}/xstate.so", *kernel]
        shutil.rmtree(self.folder / "uml" / name, ignore_errors=True)
        env = {"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin", "HOME": "/", "TMPDIR": self._memory_folder()}
        with self.log(name) as log:
            self.trees[name] = space.Tree.start(
                space.host_argv(self.network, *kernel), tied=self.tied, log=log, env=os.environ | env
            )
        self.hosts[name] = Host(name, self.network, address)
        self.save()

    def _memory_folder(self) -> str:
        """Where the kernels' memory lies: shared memory, unless that is small, as in containers."""
        need = len(_ADDRESSES) * self.memory << 20
        try:
            facts = os.statvfs("/dev/shm")
        except OSError:
            return str(self.folder)
        return "/dev/shm" if facts.f_bavail * facts.f_frsize > need else str(self.folder)

    def _mount(self, name: str) -> None:
        from .guest import EXPORT

        for version, source in (("4.2", "/"), ("3", EXPORT)):
            target = f"/run/v{version[0]}"
            self.hosts[name].run(
                "mount.nfs", f"{_ADDRESSES['S']}:{source}", target, "-o", f"vers={version}", timeout=60
            )
