"""The beds by hand, as root: ``python -m tools.nfsbed COMMAND`` at the top of the checkout.

  setup                install the Debian packages that are missing (apt-get), without starting a service
  check [--bindfs]     say whether the bed can run here
  up [--bindfs]        hosts S (the NFS server), A, B and C; A, B and C have the folder at /run/v4 and /run/v3
                       (with --bindfs no S, and the folder at /run/v0)
  exec HOST CMD...     run a command there
  off HOST | on HOST   power
  cut HOST | heal      network (with --bindfs the mount hangs)
  restart              the server's power off and on
  down                 end all of it

The bed's state is in --folder, /tmp/fsrun-bed by default; its processes are found by what is written there.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .bed import Bed, Unfit
from .bind import BindBed
from .nfs import NfsBed, setup

COMMANDS = ("setup", "check", "up", "exec", "off", "on", "cut", "heal", "restart", "down")


def _bed(folder: str, bindfs: bool) -> Bed:
    try:
        kind = json.loads(Path(folder, "bed.json").read_text())["kind"]
    except FileNotFoundError:
        kind = "bindfs" if bindfs else "nfs"
    bed: Bed = (BindBed if kind == "bindfs" else NfsBed)(folder, tied=False)
    bed.load()
    return bed


def _exec(bed: Bed, host: str, command: list[str]) -> int:
    process = bed.hosts[host].start(command)
    code = process.wait(3600)
    print("\n".join(process.out))
    print("\n".join(process.err), file=sys.stderr)
    return code


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m tools.nfsbed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("words", nargs=argparse.REMAINDER)
    parser.add_argument("--folder", default="/tmp/fsrun-bed")
    parser.add_argument("--bindfs", action="store_true")
    given = parser.parse_args()
    if given.words and given.words[0] == "--bindfs":
        given.bindfs = True
        given.words.pop(0)
    if given.command == "setup":
        print(setup())
        return 0
    bed = _bed(given.folder, given.bindfs)
    if given.command == "check":
        bed.require()
        print("fit")
        return 0
    if given.command == "up":
        if bed.network is not None:
            raise Unfit(f"a bed is up in {given.folder}: take it down first")
        try:
            bed.up()
        except BaseException:
            bed.down()
            raise
        print(f"up: {' '.join(bed.hosts)}")
        return 0
    if bed.network is None:
        raise Unfit(f"no bed is up in {given.folder}")
    if given.command in ("exec", "off", "on", "cut") and (not given.words or given.words[0] not in bed.hosts):
        raise Unfit(f"{given.command} needs a host: {' '.join(bed.hosts)}")
    if given.command == "exec":
        return _exec(bed, given.words[0], given.words[1:])
    {
        "off": lambda: bed.off(given.words[0]),
        "on": lambda: bed.start(given.words[0]),
        "cut": lambda: bed.cut(given.words[0]),
        "heal": bed.heal,
        "restart": bed.restart_server,
        "down": bed.down,
    }[given.command]()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Unfit, OSError) as error:
        print(f"tools.nfsbed: {error}", file=sys.stderr)
        sys.exit(1)
