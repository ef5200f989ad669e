"""The first process of a User-Mode Linux host: prepares it as NFS server or client, then serves as ``agent``.

Its root is this machine's, read-only; what a host writes lies in memory, or on the server's disk.
Arguments, after ``--`` on the kernel's command line: ROLE NAME ADDRESS MODULES LEASE.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

EXPORT = "/run/export"
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def call(*argv: str) -> None:
    subprocess.run(argv, check=True)


def prepare(name: str, address: str) -> None:
    os.environ.update(PATH=PATH, HOME="/run", TMPDIR="/run/tmp", LC_ALL="C")
    call("mount", "-n", "-t", "proc", "proc", "/proc")
    call("mount", "-n", "-t", "sysfs", "sysfs", "/sys")
    for folder in ("/run", "/var/lib/nfs"):
        call("mount", "-n", "-t", "tmpfs", "tmpfs", folder)
    for folder in ("tmp", "rpcbind", "rpc_pipefs", "lock", "sendsigs.omit.d", "mount", "v3", "v4"):
        Path("/run", folder).mkdir()
    for folder in ("sm", "sm.bak", "rpc_pipefs", "v4recovery", "nfsdcld", "nfsdcltrack"):
        Path("/var/lib/nfs", folder).mkdir()
    for file in ("etab", "rmtab", "state"):
        Path("/var/lib/nfs", file).touch()
    call("sh", "-c", "chown -R statd /var/lib/nfs/sm /var/lib/nfs/sm.bak /var/lib/nfs/state")
    Path("/dev/shm").mkdir(exist_ok=True)
    call("mount", "-n", "-t", "tmpfs", "tmpfs", "/dev/shm")
    socket.sethostname(name)
    call("ip", "link", "set", "lo", "up")
    call("ip", "addr", "add", f"{address}/24", "dev", "vec0")
    call("ip", "link", "set", "vec0", "up")


def module(folder: str, name: str, *options: str) -> None:
    call("modprobe", "-d", folder, name, *options)


def serve_nfs(modules: str, lease: str) -> None:
    os.mkdir(EXPORT)
    call("mount", "-n", "-t", "ext4", "/dev/ubda", EXPORT)
    # The default grace of lockd, 50 s, would block opens by v4 as well.
    module(modules, "lockd", "nlm_timeout=3", "nlm_grace_period=3")
    module(modules, "nfsd")
    call("mount", "-n", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
    Path("/proc/fs/nfsd/nfsv4gracetime").write_text(lease)
    Path("/proc/fs/nfsd/nfsv4leasetime").write_text(lease)
    call("rpc.statd", "--no-notify")
    call("exportfs", "-o", "rw,sync,no_root_squash,no_subtree_check,fsid=0,insecure", f"*:{EXPORT}")
    call("rpc.mountd")
    call("rpc.nfsd", "4")
    Path("/proc/fs/nfsd/v4_end_grace").write_text("Y")


def main(role: str, name: str, address: str, modules: str, lease: str) -> None:
    prepare(name, address)
    module(modules, "sunrpc")
    call("rpcbind", "-w")
    if role == "server":
        serve_nfs(modules, lease)
    else:
        for wanted in ("nfs", "nfsv3", "nfsv4"):
            module(modules, wanted)
        call("rpc.statd", "--no-notify")
    from agent import serve

    serve(address)


if __name__ == "__main__":
    main(*sys.argv[1:6])  # the kernel adds words of its own
