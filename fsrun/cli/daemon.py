"""``fsrun daemon ROOT``: keep the runs below a root in order, until told to stop."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from fsrun.cli.options import DURATION
from fsrun.cli.text import age, clean, say, to_json


@click.command(short_help="Keep the runs below a root in order: close dead jobs, bring back their work.")
@click.argument("root", required=False)
@click.option("--once", is_flag=True, help="Decide every open session once, bring all in order, and end.")
@click.option("--status", is_flag=True, help="Say what the daemons of this host and user do, and end.")
@click.option("--interval", type=DURATION, default=None, help="Time between two full sweeps.  [default: 10m]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object a line, and --status as one document.")
def command(root: str | None, once: bool, status: bool, interval: float | None, as_json: bool) -> int:
    """Watch every run below ROOT (default: $FSRUN_ROOT, else ./runs), in the foreground, until SIGTERM or Ctrl-C.

    Closes sessions that are proved dead or whose heartbeat stood still for their timeout, brings home what dead
    evaluators held, corrects views, builds data.parquet of runs whose jobs have ended, empties trash. It starts and
    stops no job. Any number of daemons on any hosts may watch one root. --once exits with 1 where something could not
    be done.
    """
    if status:
        return _status(root, as_json)
    from fsrun.core.timing import SWEEP_INTERVAL
    from fsrun.daemon.service import Service, leave
    from fsrun.run.roots import resolve_root

    path = resolve_root(root)
    service = Service(path, _write, as_json=as_json, sweep_interval=SWEEP_INTERVAL if interval is None else interval)
    code = service.serve(once=once)
    leave(code)
    return code


def _write(line: str) -> None:
    sys.stdout.write(clean(line) + "\n")
    sys.stdout.flush()


def _status(root: str | None, as_json: bool) -> int:
    from fsrun.core.errors import NotFoundError
    from fsrun.daemon.status import read_all
    from fsrun.disk.locks import runtime_folder
    from fsrun.run.roots import resolve_root

    folder = runtime_folder(os.environ)
    path = None if root is None else resolve_root(root)
    found = list(read_all(folder, path))
    if as_json:
        say(to_json(found))
    elif not found:
        raise NotFoundError(f"no daemon{f' of {path}' if path else ''} ran on this host for this user ({folder})")
    else:
        for facts in found:
            _say_status(facts)
    return 0 if any(facts["running"] for facts in found) else 1


def _say_status(facts: dict[str, Any]) -> None:
    state = f"running, process {facts['pid']}, for {age(facts['up_s'])}" if facts["running"] else "not running"
    say(f"{clean(facts['root'])}: {state} (fsrun {facts['version']}; as of {facts['written']})")
    late = f", {len(facts['late'])} with a late heartbeat" if facts["late"] else ""
    say(f"  runs      {facts['runs']}, live {facts['live']}{late}")
    say(f"  rounds    {facts['rounds']}, the last in {facts['round_s']} s; {facts['looks_per_s']} listings a second")
    did = ", ".join(f"{what} {number}" for what, number in sorted(facts["did"].items()))
    say(f"  did       {did or 'nothing yet'}")
    if facts["waiting"] or facts["to_compact"]:
        say(f"  waiting   {facts['waiting']} ended runs to look through, {facts['to_compact']} to compact")
    for hung in facts["hanging"]:
        say(f"  hangs     {hung['what']} of {clean(hung['path'])}, for {age(hung['seconds'])}")
    for problem in facts["problems"]:
        say(f"  problem   {clean(problem['path'])}: {clean(problem['what'])} (since {problem['since']})")
    if facts["untold_problems"]:
        say(f"  problem   {facts['untold_problems']} more")
