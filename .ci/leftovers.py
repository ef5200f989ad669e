"""Fails where a process is left of those that .ci/run started, and ends it: ``leftovers.py PID_OF_RUN``.

They are told by the mark in their environment; the run itself and what it runs at the moment is left alone.
"""

import os
import signal
import sys
import time
from pathlib import Path

GRACE_S = 30.0
"""How long trees of processes that were ended have to be gone, on a busy machine."""


def parents() -> set[int]:
    line, pid = set(), os.getpid()
    while pid > 1:
        line.add(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return line


def left(mark: bytes, run: int) -> dict[int, str]:
    found = {}
    ours = parents()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in ours:
            continue
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            # The shell's own helper, such as the tee of this very check, is a child of the run.
            if int(stat[1]) == run or stat[0] == "Z" or mark not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
    return found


def main(run: int) -> int:
    mark = b"FSRUN_CI_MARK=" + os.environb[b"FSRUN_CI_MARK"]
    until = time.monotonic() + GRACE_S
    while (found := left(mark, run)) and time.monotonic() < until:
        time.sleep(0.2)
    for pid, command in found.items():
        print(f"left behind: {pid}: {command}")
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    if not found:
        print("none")
    return 1 if found else 0


sys.exit(main(int(sys.argv[1])))
