"""``fsrun ls [ROOT]``: one line a run."""

from __future__ import annotations

import gc
import time
from operator import itemgetter
from typing import Any

import click

from fsrun.cli.options import json_option
from fsrun.cli.text import age, clean, say, status_text, to_json

_COLUMNS = ("RUN", "AGE", "STATUS", "STEP", "JOBS")


@click.command(short_help="List runs and the state of their jobs.")
@click.argument("root", required=False)
@json_option
def command(root: str | None, as_json: bool) -> None:
    """List the runs below ROOT (default: $FSRUN_ROOT, else ./runs), newest first, with the state of every job.

    ROOT may also be the folder of one project, or one run. "silent 3 h" says that a job which nobody has closed has not
    written its view for that long; whether it lives is not known from here.
    """
    from fsrun.disk.fs import LocalFileSystem
    from fsrun.run.listing import Chains, brief_run, list_runs, read_run
    from fsrun.run.roots import resolve_root
    from fsrun.run.spread import MOST_PROCESSES

    gc.disable()  # ten thousand small dictionaries and no cycle: collecting costs a fifth of the time
    fs, now_ns = LocalFileSystem(), time.time_ns()
    top = resolve_root(root)
    if as_json:
        runs = list_runs(fs, top, lambda path, chains: read_run(fs, path, chains, now_ns=now_ns), MOST_PROCESSES)
        say(to_json(runs, decoded=True))
        return

    def tell(path: str, chains: Chains) -> tuple[str, tuple[str, ...]]:
        run = brief_run(fs, path, chains, now_ns=now_ns)
        return run["started"] or "", _row(run, now_ns)

    rows = list_runs(fs, top, tell, MOST_PROCESSES)
    rows.sort(key=itemgetter(0), reverse=True)
    if not rows:
        click.echo(f"no runs below {clean(top)}", err=True)
        return
    say(_table([_COLUMNS, *(row for _, row in rows)]))


def _row(run: dict[str, Any], now_ns: int) -> tuple[str, ...]:
    from fsrun.core.records import parse_rfc3339

    began = parse_rfc3339(run["started"] or "")
    old = "-" if began is None else age(now_ns / 1e9 - began)
    jobs = ", ".join(f"{clean(job['job'])} {status_text(job)}" for job in run["jobs"])
    step = run.get("step")
    status = status_text(run) + (f" [{clean(run['problem'])}]" if run.get("problem") else "")
    return f"{clean(run['project'])}/{clean(run['id'])}", old, status, "-" if step is None else clean(step), jobs or "-"


def _table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    line = f"{{:<{widths[0]}}}  {{:>{widths[1]}}}  {{:<{widths[2]}}}  {{:>{widths[3]}}}  {{}}"
    return "\n".join(line.format(*row).rstrip() for row in rows)
