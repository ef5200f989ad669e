"""Measures what fsrun promises to be fast at, beside its peers, and prints the numbers with those it has to reach.

    .venv/bin/python tools/bench                    all of it, beside trackio, tensorboardX and TensorBoard: 45 minutes
    .venv/bin/python tools/bench --quick            less of everything, one round: to see that it works
    .venv/bin/python tools/bench --all              also beside W&B offline, MLflow's file store and Aim; installs them
                                                    first, and takes hours
    .venv/bin/python tools/bench logging start      some of it
    .venv/bin/python tools/bench --keep FILE        goes on where it stopped: groups in FILE are not measured again
    .venv/bin/python tools/bench --write            renews the tables in README.md and docs/numbers.md
    .venv/bin/python tools/bench snapshot --cuda    the stall of a snapshot on a GPU; without one it says so

Peers take their turns with fsrun in the same run: `sh tools/setup bench` installs the default ones. A group that fails
is named, the others are measured, and the exit code is 1. Nothing here is a test: a busy machine gives other numbers,
so the machine and its load are named with them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import calls
import charts
import environments
import evaluating
import growth
import listing
import logging_rows
import modes
import queueing
import reading
import reasons
import sharing
import snapshots
import starting
import table
import viewing
from rows import Row, Settings

import daemon

GROUPS = {
    "logging": logging_rows.measure,
    "reading": reading.measure,
    "visibility": sharing.visibility,
    "start": starting.measure,
    "queue": queueing.measure,
    "calls": calls.measure,
    "nfs": calls.measure_nfs,
    "ls": listing.measure,
    "growth": growth.measure,
    "daemon": daemon.measure,
    "viewer": viewing.measure,
    "charts": charts.measure,
    "eval": evaluating.measure,
    "snapshot": snapshots.measure,
    "modes": modes.measure,
}
ROOT = Path(__file__).parents[2]
README, NUMBERS = ROOT / "README.md", ROOT / "docs" / "numbers.md"
SPACE = 4 << 30
Kept = dict[str, dict[str, Any]]
"""Group -> its rows, the machine they were measured on, and whether it was a quick run."""


def main() -> int:
    options = _options()
    pythons, missing = environments.prepare(options.all)
    for tool, why in missing.items():
        print(f"bench: {tool} is not measured: {why}", file=sys.stderr)
    kept = options.kept
    asked = options.groups or [name for name in GROUPS if name not in kept]
    failed = []
    with tempfile.TemporaryDirectory(prefix="fsrun-bench-", dir=options.folder) as folder:
        if not options.quick and (free := _free(folder)) < SPACE:
            print(f"bench: {folder}: {free >> 20} MB free, {SPACE >> 20} are needed; see --folder", file=sys.stderr)
            return 1
        settings = Settings(Path(folder), 1 if options.quick else options.rounds, options.quick, pythons)
        versions = environments.versions(pythons)
        for name in asked:
            began = time.monotonic()
            print(f"bench: {name} ...", file=sys.stderr, flush=True)
            work = snapshots.measure_cuda if name == "snapshot" and options.cuda else GROUPS[name]
            try:
                rows = work(settings)
            except Exception:
                traceback.print_exc()
                failed.append(name)
                continue
            for row in rows:
                if row.peers or row.absent:
                    row.absent |= missing
            machine = table.facts(Path(folder), versions, time.strftime("%Y-%m-%d", time.gmtime()))
            kept[name] = {"rows": [row.to_json() for row in rows], "machine": machine, "quick": options.quick}
            _save(options.keep, kept)
            print(f"bench: {name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    code = _print(kept, options)
    if failed:
        print(f"bench: failed: {', '.join(failed)}; run these again", file=sys.stderr)
    return 1 if failed else code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}; all of them by default")
    parser.add_argument("--all", action="store_true", help="also W&B offline, MLflow's file store and Aim")
    parser.add_argument(
        "--folder", type=Path, help="where the runs are made: on the file system that is to be measured"
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each tool has its turn (5)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the points, one round: to see that it works")
    parser.add_argument("--cuda", action="store_true", help="with snapshot: on a GPU, with 4 GB; under five minutes")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="results so far: groups in it are measured again only if named"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", action="store_true", help="renew the tables in README.md and docs/numbers.md")
    options = parser.parse_args()
    unknown = set(options.groups) - set(GROUPS)
    if unknown:
        parser.error(f"no such group: {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    if options.write and options.quick:
        parser.error("--write: numbers of a quick run are not for the README")
    if options.rounds < 1:
        parser.error("--rounds: at least one")
    if options.cuda and options.groups != ["snapshot"]:
        parser.error("--cuda: with the group snapshot alone")
    if options.folder and not options.folder.is_dir():
        parser.error(f"--folder: {options.folder} is no folder")
    try:
        options.kept = _load(options.keep, options.quick)
    except (OSError, ValueError) as error:
        parser.error(f"--keep: {options.keep}: {error}")
    lacking = [name for name in GROUPS if options.groups and name not in {*options.groups, *options.kept}]
    if options.write and lacking:
        parser.error(f"--write: the tables would lose the rows of {', '.join(lacking)}; see --keep")
    return options


def _free(folder: str) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _load(path: Path | None, quick: bool) -> Kept:
    """What an earlier run left; raises ``ValueError`` where that is no such thing, or of the other kind of run."""
    if path is None or not path.exists():
        return {}
    kept: Kept = json.loads(path.read_text(encoding="utf-8"))
    if any(found["quick"] != quick for found in kept.values()):
        raise ValueError(f"holds {'whole' if quick else 'quick'} runs; quick and whole ones are not mixed")
    return {name: found for name, found in kept.items() if name in GROUPS}


def _save(path: Path | None, kept: Kept) -> None:
    if path is not None:
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        os.replace(part, path)


def _print(kept: Kept, options: argparse.Namespace) -> int:
    """Print the table, and renew those of the documents; 1 where a row that needs a reason has none."""
    rows: list[Row] = []
    machines: list[dict[str, Any]] = []
    for name in GROUPS:
        if name in kept:
            rows += map(Row.from_json, kept[name]["rows"])
            _add_machine(machines, kept[name]["machine"] | {"quick": kept[name]["quick"]}, name)
    if options.json:
        print(json.dumps({"machines": machines, "rows": [row.to_json() for row in rows]}, indent=2))
    else:
        print(table.markdown(rows, machines))
    if options.write and (lacking := [name for name in GROUPS if name not in kept]):
        print(
            f"bench: not written: without {', '.join(lacking)} the tables would lose rows; see --keep", file=sys.stderr
        )
        return 1
    if options.write and (unsaid := reasons.unsaid(rows)):
        print(f"bench: not written: tools/bench/reasons.py does not say why of: {'; '.join(unsaid)}", file=sys.stderr)
        return 1
    if options.write:
        telling = [row for row in rows if row.goal is not None or row.peers or row.absent]
        table.renew(README, table.markdown([row.beside(environments.DEFAULT) for row in telling], machines))
        table.renew(NUMBERS, table.markdown(rows, machines))
    return 0


def _add_machine(machines: list[dict[str, Any]], machine: dict[str, Any], group: str) -> None:
    """One line for all groups that were measured alike; of their loads the highest."""
    for known in machines:
        if all(known[key] == value for key, value in machine.items() if key != "load"):
            known["load"] = max(known["load"], machine["load"])
            known["groups"] += f", {group}"
            return
    machines.append(machine | {"groups": group})


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that what was started is ended
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
