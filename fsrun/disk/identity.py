"""Who this process is, and whether another one is proved dead (protocol.md 4, "Proved dead").

Fails closed: true only on proof. What cannot be read, or belongs to another host, boot or pid namespace, is unknown.
"""

from __future__ import annotations

import errno
import getpass
import os
import secrets
import socket

from fsrun.core.records import Holder


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _own_proc() -> bool:
    """Whether /proc is there and is the one of this pid namespace: in a new namespace /proc/1 may be another's."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and raw start ticks of a process, or None. The name in the line may hold anything, ``)`` too."""
    text = _read(f"/proc/{pid}/stat")
    fields = text.rpartition(")")[2].split()
    try:
        return fields[0], int(fields[19])
    except (IndexError, ValueError):
        return None


def _threads(pid: int) -> int | None:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid()) if hasattr(os, "getuid") else ""


def own() -> Holder:
    """Return the holder record of this process. Read anew at each call: after a fork it is another one."""
    try:
        pidns = str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        pidns = ""
    pid = os.getpid()
    stat = _stat(pid) if _own_proc() else None
    return Holder(
        host=socket.gethostname(),
        boot=_read("/proc/sys/kernel/random/boot_id"),
        pidns=pidns,
        pid=pid,
        ticks=stat[1] if stat else None,
        user=_user(),
    )


def new_token() -> str:
    """Return a random token for a session (64 bits, from the system: the user's seeded generators stay untouched)."""
    return secrets.token_hex(8)


def same_process(a: Holder, b: Holder) -> bool:
    """Whether two records name one process, as far as they can tell (an ``execv`` keeps it)."""
    known = bool(a.boot and a.pidns and a.pid and a.ticks is not None)
    return known and (a.host, a.boot, a.pidns, a.pid, a.ticks) == (b.host, b.boot, b.pidns, b.pid, b.ticks)


def proved_dead(holder: Holder, me: Holder | None = None) -> bool:
    """Whether ``holder`` is certainly gone. False means alive or unknown.

    Proof: its host, boot and pid namespace are this process's own, and the pid is free, belongs to a process with
    another start, or is a zombie without a thread (it can never run again; its parent has not collected it).
    """
    me = me or own()
    same_place = (holder.host, holder.boot, holder.pidns) == (me.host, me.boot, me.pidns)
    if not same_place or not holder.boot or not holder.pidns or holder.pid <= 0:
        return False
    try:
        os.kill(holder.pid, 0)
    except OSError as error:
        if error.errno == errno.ESRCH:
            return True
        if error.errno != errno.EPERM:
            return False
    except OverflowError:
        return False
    stat = _stat(holder.pid) if _own_proc() else None
    if stat is None:
        return False
    if holder.ticks is not None and stat[1] != holder.ticks:
        return True
    return stat[0] in "ZX" and _threads(holder.pid) == 1


def is_alive(holder: Holder, me: Holder | None = None) -> bool | None:
    """Whether ``holder`` runs: True or False where this host can prove it, None where it cannot."""
    me = me or own()
    if proved_dead(holder, me):
        return False
    same_place = (holder.host, holder.boot, holder.pidns) == (me.host, me.boot, me.pidns)
    if not same_place or not holder.boot or not holder.pidns or holder.ticks is None:
        return None
    stat = _stat(holder.pid) if _own_proc() else None
    return True if stat is not None and stat[1] == holder.ticks else None
