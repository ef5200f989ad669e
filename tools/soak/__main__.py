"""Soak: random jobs on one run after the other, random faults upon them, and a proof from the files of what came out.

    .venv/bin/python tools/soak --minutes 10                              runs, each for about a minute
    .venv/bin/python tools/soak --minutes 10 --root /mnt/a --also /mnt/b  one shared folder through two mounts
    .venv/bin/python tools/soak --minutes 1 --seed 7                      the same dice again (not the same timing)

Ends with 1 at the first violation, which it explains; the files and journals of that run are then kept.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from tools.soak.chaos import Place, Round, Violation
    from tools.soak.proof import prove
else:
    from .chaos import Place, Round, Violation
    from .proof import prove


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--seed", type=int, default=None, help="of the dice; printed, so that it can be given again")
    parser.add_argument("--root", help="folder for the runs (default: a new one for temporary files)")
    parser.add_argument("--also", help="the same folder through another mount; jobs take one or the other")
    parser.add_argument("--timeout", type=float, default=1.0, help="T of all sessions (1 s)")
    parser.add_argument("--disturb", type=float, default=40.0, help="seconds of faults in each run (40)")
    return parser.parse_args()


def stop(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    given = arguments()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1 << 32)
    signal.signal(signal.SIGTERM, stop)
    local = Path(tempfile.mkdtemp(prefix="fsrun-soak-"))
    root = Path(given.root) if given.root else local / "runs"
    root.mkdir(exist_ok=True)
    roots = [str(root.absolute())] + ([str(Path(given.also).absolute())] if given.also else [])
    kinds: Counter[str] = Counter()
    proved: Counter[str] = Counter()
    end = time.monotonic() + given.minutes * 60
    print(f"soak: seed {seed}, T {given.timeout:g} s, {' and '.join(roots)}", flush=True)
    number = 0
    try:
        while number == 0 or time.monotonic() < end:
            number += 1
            place = Place(roots, local / f"round-{number}", f"run-{seed}-{number}")
            round_ = Round(place, random.Random(f"{seed}.{number}"), given.timeout, kinds)
            try:
                round_.disturb(max(5.0, min(given.disturb, end - time.monotonic())))
                round_.settle()
                round_.repair()
                found = prove(round_)
            finally:
                round_.close()
            proved.update(found)
            print(f"  round {number}: {', '.join(f'{n} {what}' for what, n in found.items())}", flush=True)
            shutil.rmtree(place.path())
            shutil.rmtree(round_.checkpoints)
            shutil.rmtree(place.local)
    except Violation as violation:
        print(
            f"soak: VIOLATION in round {number} (seed {seed}): {violation}\n"
            f"  run: {place.path()}\n  journals: {round_.journals}"
        )
        report(kinds, proved)
        return 1
    report(kinds, proved)
    shutil.rmtree(local)
    return 0


def report(kinds: Counter[str], proved: Counter[str]) -> None:
    print("faults and starts:", ", ".join(f"{what} {n}" for what, n in sorted(kinds.items())) or "none")
    print("held:", ", ".join(f"{n} {what}" for what, n in proved.items()) or "nothing was proved")


if __name__ == "__main__":
    sys.exit(main())
