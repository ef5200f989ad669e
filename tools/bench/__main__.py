"""Measures what fsrun promises to be fast at, beside its peers, and prints the numbers with those it has to reach.

    .venv/bin/python tools/bench                      all of it, about ten minutes on two free cores
    .venv/bin/python tools/bench logging import       some of it; --quick for a tenth of the points and fewer rounds
    .venv/bin/python tools/bench snapshot --cuda      the stall of a snapshot on a GPU; without one it says so
    .venv/bin/python tools/bench --json               for programs
    .venv/bin/python tools/bench --write              renews the table between the two bench marks in README.md

Peers (trackio, tensorboardX) are measured in the same run, in turns with fsrun, where they are installed:
`sh tools/setup bench`. Nothing here is a test: a busy machine gives other numbers, so the machine is named with them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import calls
import charts
import evaluating
import logging_rows
import modes
import reading
import sharing
import snapshots
import starting
import viewing
from rows import Row, Settings, facts, markdown, renew

import daemon

GROUPS = {
    "logging": logging_rows.measure,
    "reading": reading.measure,
    "visibility": sharing.visibility,
    "handover": sharing.handover,
    "import": starting.measure,
    "calls": calls.measure,
    "daemon": daemon.measure,
    "viewer": viewing.measure,
    "charts": charts.measure,
    "eval": evaluating.measure,
    "snapshot": snapshots.measure,
    "modes": modes.measure,
}
README = Path(__file__).parents[2] / "README.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/bench", description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}; all of them by default")
    parser.add_argument(
        "--folder", type=Path, help="where the runs are made: on the file system that is to be measured"
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each tool has its turn (5)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the points, two rounds: to see that it works")
    parser.add_argument("--cuda", action="store_true", help="with snapshot: on a GPU, with 4 GB; under five minutes")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", action="store_true", help="renew the table in README.md")
    options = parser.parse_args()
    unknown = set(options.groups) - set(GROUPS)
    if unknown:
        parser.error(f"no such group: {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="fsrun-bench-", dir=options.folder) as folder:
        settings = Settings(Path(folder), 2 if options.quick else options.rounds, options.quick)
        for name in options.groups or GROUPS:
            print(f"bench: {name} ...", file=sys.stderr, flush=True)
            work = snapshots.measure_cuda if name == "snapshot" and options.cuda else GROUPS[name]
            rows += work(settings)
        machine = facts(Path(folder))
    if options.json:
        print(json.dumps({"machine": machine, "rows": [row.to_json() for row in rows]}, indent=2))
    else:
        print(markdown(rows, machine))
    if options.write:
        renew(README, markdown(rows, machine))
    return 0


if __name__ == "__main__":
    sys.exit(main())
