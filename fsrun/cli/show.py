"""``fsrun show RUN``: the state of one run, for people (rich) or as JSON."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from fsrun.cli.costs import evaluation_lines, seconds
from fsrun.cli.options import find_run, json_option, root_option, run_argument
from fsrun.cli.tables import Column, make_table
from fsrun.cli.text import age, clean, number, say, status_text, to_json
from fsrun.core.ids import MAIN

if TYPE_CHECKING:
    from rich.console import Console

_LAST_EVALS = 10
_LAST_SCALARS = 20
_WIDTH = 120
"""Columns of the page where stdout is no terminal."""
_COMMAND = 160
"""Characters of a command that are shown."""


@click.command(short_help="Show one run: jobs, queue, best, evaluations, scalars, media.")
@run_argument
@root_option
@json_option
@click.option("--all", "every", is_flag=True, help="All evaluations, scalars and media, not the last ones alone.")
def command(run: str, root: str | None, as_json: bool, every: bool) -> None:
    """Show one run: every job, the queue, the best checkpoint, evaluations, latest scalars, what else was recorded.

    status is running, finished, failed (an error, kept with its traceback) or crashed (no end was written, and it was
    found dead). alive is yes, no or unknown: on another host nobody can tell by looking once.
    """
    from fsrun.disk.fs import LocalFileSystem
    from fsrun.run.inspect import inspect_run
    from fsrun.run.listing import started

    path = find_run(run, root)
    fs, now_ns = LocalFileSystem(), time.time_ns()
    state = inspect_run(fs, path, now_ns=now_ns)
    if as_json:
        say(to_json(state))
        return
    width = None if sys.stdout.isatty() else _WIDTH
    say(render(state, _latest(path), _times(state["run"], started(fs, path), now_ns), every=every, width=width))


def _latest(path: str) -> list[tuple[str, Any, Any]]:
    """Last value of each tag: (tag, step, value). A run whose logs cannot be read has none here; ``check`` says why."""
    from fsrun.core.errors import FsrunError
    from fsrun.run.reader import open as open_run

    try:
        return [(tag, step, value) for tag, (step, value) in sorted(open_run(path).last().items())]
    except (FsrunError, OSError):
        return []


def _times(run: dict[str, Any], began: str | None, now_ns: int) -> str | None:
    """When the first session was opened, and how long ago the last one ended or how long it has gone on since."""
    from fsrun.core.records import parse_rfc3339

    start = parse_rfc3339(began or "")
    if began is None or start is None:
        return None
    end = parse_rfc3339(run["ended"] or "")
    moment = clean(began[:16].replace("T", " ")) + " UTC"
    if end is not None:
        return f"started {moment}, ended after {age(end - start)}"
    return f"started {moment}, {age(now_ns / 1e9 - start)} ago"


def render(
    state: dict[str, Any],
    latest: Sequence[tuple[str, Any, Any]],
    times: str | None,
    *,
    every: bool = False,
    width: int | None = None,
) -> str:
    """Return the page as text, ``width`` columns wide (None: as the terminal); colours only on a terminal."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False, width=width, soft_wrap=True)
    with console.capture() as captured:
        _print_run(console, state["run"], times)
        for line in _environment(state["environment"]):
            console.print(line)
        _print_table(console, _JOBS, [_job(job) for job in state["jobs"]])
        console.print(_queue_line(state["queue"], state["run"], state["jobs"]))
        console.print(_best_line(state["best"]))
        evals, media = state["evals"], state["recorded"]
        for line in evaluation_lines(state["evaluation"], state["jobs"]):
            console.print(line)
        shown = evals if every else evals[-_LAST_EVALS:]
        _print_table(console, _EVALS, [_eval(outcome) for outcome in shown], len(evals), "evaluations, the last ones")
        rows = [(clean(tag), _cell(step), number(value)) for tag, step, value in latest]
        _print_table(console, _SCALARS, rows if every else rows[:_LAST_SCALARS], len(rows), "scalars")
        groups = [tuple(_cell(group[key]) for key in ("kind", "name", "count", "step", "path")) for group in media]
        _print_table(console, _RECORDED, groups if every else groups[:_LAST_SCALARS], len(groups), "recorded")
    return captured.get()


def _print_table(
    console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]], count: int = 0, what: str = ""
) -> None:
    """Print a table, and how many there are where it does not show all."""
    if not rows:
        return
    console.print(make_table(columns, rows, console.width))
    if count > len(rows):
        console.print(f"{len(rows)} of {count} {what}; --all shows all")


def _print_run(console: Console, run: dict[str, Any], times: str | None) -> None:
    step = "" if run["step"] is None else f", step {run['step']}"
    name = f" ({clean(run['name'])})" if run["name"] else ""
    console.print(f"{clean(run['project'])}/{clean(run['id'])}{name}: {status_text(run)}{step}")
    console.print(clean(run["path"]))
    if times is not None:
        console.print(times)
    for job in [run, *run.get("jobs", ())]:
        if job.get("problem"):
            console.print(f"damaged: {clean(job['problem'])}; fsrun check says more")
    if (last := _error_line(run["error"])) is not None:
        console.print(last)


def _environment(environment: dict[str, Any] | None) -> list[str]:
    """What main started from, in two lines: the code; command and host."""
    if not environment:
        return []
    lines = []
    code = environment.get("git")
    if isinstance(code, dict) and code.get("commit"):
        where = ", ".join(clean(str(code[key])) for key in ("branch", "remote") if code.get(key))
        changed = " with changes that are not committed" if code.get("dirty") else ""
        lines.append(f"code: {clean(str(code['commit']))[:12]}{f' ({where})' if where else ''}{changed}")
    command = environment.get("command")
    if isinstance(command, list) and command:
        text = clean(shlex.join(map(str, command)))
        short = text if len(text) <= _COMMAND else f"{text[:_COMMAND]} ..."
        lines.append(f"started on {clean(str(environment.get('host')))}: {short}")
    return lines


def _error_line(error: object) -> str | None:
    from fsrun.run.listing import error_line

    line = error_line(error)
    return None if line is None else clean(line)


def _cell(value: object) -> str:
    return "-" if value is None else clean(value)


_JOBS = (
    Column("job"), Column("session", 2, right=True), Column("status"), Column("alive", 4), Column("host", 3),
    Column("pid", 1, right=True), Column("step", 5, right=True), Column("note", 6, folds=True),
)  # fmt: skip
_EVALS = (
    Column("entry"), Column("step", 5, right=True), Column("attempt", 4, right=True), Column("state"),
    Column("lag", 3, right=True), Column("took", 2, right=True), Column("samples", 1, right=True),
    Column("scores", folds=True),
)  # fmt: skip
_SCALARS = (Column("scalar", folds=True), Column("step", 1, right=True), Column("value", right=True))
_RECORDED = (
    Column("recorded", 3), Column("name", folds=True), Column("count", 1, right=True), Column("step", 2, right=True),
    Column("latest", 4, folds=True),
)  # fmt: skip


def _job(job: dict[str, Any]) -> tuple[str, ...]:
    # The error of main stands at the top of the page.
    note = "" if job["job"] == MAIN else _error_line(job["error"]) or ""
    if job["alive"] == "unknown" and job["silent_s"] is not None:
        note = f"last heard of {age(job['silent_s'])} ago, by this host's clock"
    cells = (job["job"], job["session"], status_text(job), job["alive"], job["host"], job["pid"], job["step"])
    return (*map(_cell, cells), note)


def _queue_line(queue: dict[str, Any], run: dict[str, Any], jobs: list[dict[str, Any]]) -> str:
    if queue.get("problem"):
        return f"queue: {clean(queue['problem'])}"
    counts = ", ".join(f"{queue[key]} {key}" for key in ("waiting", "claimed", "failed"))
    if any(job["hands_over"] and job["status"] == "running" for job in jobs):
        more = "more may come"
    elif queue["finished"] or run["status"] == "finished":
        more = "no more will come"
    elif run["status"] in ("failed", "crashed"):
        more = "no more will come unless main comes back"
    else:
        more = "more may come"
    if queue["waiting"] and all(job["status"] == "finished" for job in jobs):
        more += "; all jobs have finished, and nobody takes what waits: start fsrun eval"
    return f"queue: {counts}; {more}"


def _best_line(best: dict[str, Any] | None) -> str:
    if best is None:
        return "best: none yet"
    return f"best: {clean(best['entry'])} at step {_cell(best['step'])}, {clean(best['tag'])} {number(best['score'])}"


def _eval(outcome: dict[str, Any]) -> tuple[str, ...]:
    scores = ", ".join(f"{clean(tag)} {number(value)}" for tag, value in outcome["scores"].items())
    said = scores or _error_line(outcome["error"]) or clean(outcome["reason"] or "")
    # Main may have gone back to an earlier step meanwhile.
    lag = None if outcome["lag_steps"] is None else max(0, outcome["lag_steps"])
    cells = map(_cell, (outcome["entry"], outcome["step"], outcome["attempt"], outcome["state"], lag))
    lasted = outcome["duration_s"]
    took = seconds(lasted) if isinstance(lasted, int | float) else "-"
    return (*cells, took, _cell((outcome["samples"] or {}).get("rows")), said)
