"""``fsrun show RUN``: the state of one run, for people (rich) or as JSON."""

from __future__ import annotations

import shlex
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from fsrun.cli.options import find_run, json_option, root_option, run_argument
from fsrun.cli.text import age, clean, number, say, status_text, to_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_LAST_EVALS = 10
_LAST_SCALARS = 20
_COMMAND = 160
"""Characters of a command that are shown."""


@click.command(short_help="Show one run: jobs, queue, best, evaluations, scalars, media.")
@run_argument
@root_option
@json_option
def command(run: str, root: str | None, as_json: bool) -> None:
    """Show one run: every job, the queue, the best checkpoint, evaluations, latest scalars, what else was recorded.

    status is running, finished, failed (an error, kept with its traceback) or crashed (no end was written, and it was
    found dead). alive is yes, no or unknown: on another host nobody can tell by looking once.
    """
    from fsrun.disk.fs import LocalFileSystem
    from fsrun.run.inspect import inspect_run

    path = find_run(run, root)
    state = inspect_run(LocalFileSystem(), path, now_ns=time.time_ns())
    if as_json:
        say(to_json(state))
        return
    say(_render(state, _latest(path)))


def _latest(path: str) -> list[tuple[str, Any, Any]]:
    """Last value of each tag: (tag, step, value). A run whose logs cannot be read has none here; ``check`` says why."""
    from fsrun.core.errors import FsrunError
    from fsrun.run.reader import open as open_run

    try:
        return [(tag, step, value) for tag, (step, value) in sorted(open_run(path).last().items())]
    except (FsrunError, OSError):
        return []


def _render(state: dict[str, Any], latest: list[tuple[str, Any, Any]]) -> str:
    """Return the page as text; colours only where stdout is a terminal."""
    from rich.console import Console

    # Into a file or a pipe lines are not folded at some invented width.
    width = None if sys.stdout.isatty() else 200
    console = Console(highlight=False, markup=False, emoji=False, width=width, soft_wrap=True)
    with console.capture() as captured:
        _print_run(console, state["run"])
        for line in _environment(state["environment"]):
            console.print(line)
        console.print(_jobs(state["jobs"]))
        console.print(_queue_line(state["queue"]))
        console.print(_best_line(state["best"]))
        if state["evals"]:
            console.print(_evals(state["evals"]))
        if latest:
            console.print(_scalars(latest))
        if state["recorded"]:
            console.print(_recorded(state["recorded"]))
    return captured.get()


def _print_run(console: Console, run: dict[str, Any]) -> None:
    step = "" if run["step"] is None else f", step {run['step']}"
    name = f" ({clean(run['name'])})" if run["name"] else ""
    console.print(f"{clean(run['project'])}/{clean(run['id'])}{name}: {status_text(run)}{step}")
    console.print(clean(run["path"]))
    for job in [run, *run.get("jobs", ())]:
        if job.get("problem"):
            console.print(f"damaged: {clean(job['problem'])}; fsrun check says more")
    if (last := error_line(run["error"])) is not None:
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


def error_line(error: object) -> str | None:
    """Return the last line of a kept traceback, else its type and message."""
    if not isinstance(error, dict):
        return None
    lines = [line for line in str(error.get("traceback") or "").splitlines() if line.strip()]
    return clean(lines[-1].strip() if lines else f"{error.get('type', 'error')}: {error.get('message', '')}")


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        right = column in ("session", "pid", "step", "value", "attempt", "lag", "count")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    return table


def _cell(value: object) -> str:
    return "-" if value is None else clean(value)


def _jobs(jobs: list[dict[str, Any]]) -> Table:
    table = _table("job", "session", "status", "alive", "host", "pid", "step", "note")
    for job in jobs:
        note = error_line(job["error"]) or ""
        if job["alive"] == "unknown" and job["silent_s"] is not None:
            note = f"last heard of {age(job['silent_s'])} ago, by this host's clock"
        cells = (job["job"], job["session"], status_text(job), job["alive"], job["host"], job["pid"], job["step"])
        table.add_row(*map(_cell, cells), note)
    return table


def _queue_line(queue: dict[str, Any]) -> str:
    if queue.get("problem"):
        return f"queue: {clean(queue['problem'])}"
    counts = ", ".join(f"{queue[key]} {key}" for key in ("waiting", "claimed", "failed"))
    return f"queue: {counts}; {'no more will come' if queue['finished'] else 'more may come'}"


def _best_line(best: dict[str, Any] | None) -> str:
    if best is None:
        return "best: none yet"
    return f"best: {clean(best['entry'])} at step {_cell(best['step'])}, {clean(best['tag'])} {number(best['score'])}"


def _evals(evals: list[dict[str, Any]]) -> Table:
    table = _table("entry", "step", "attempt", "state", "lag", "scores")
    for outcome in evals[-_LAST_EVALS:]:
        scores = ", ".join(f"{clean(tag)} {number(value)}" for tag, value in outcome["scores"].items())
        said = scores or error_line(outcome["error"]) or clean(outcome["reason"] or "")
        cells = (outcome["entry"], outcome["step"], outcome["attempt"], outcome["state"], outcome["lag_steps"])
        table.add_row(*map(_cell, cells), said)
    return table


def _recorded(groups: list[dict[str, Any]]) -> Table:
    """Media by tag, tables and artifacts by name."""
    table = _table("recorded", "name", "count", "step", "latest")
    for group in groups[:_LAST_SCALARS]:
        table.add_row(*(_cell(group[key]) for key in ("kind", "name", "count", "step", "path")))
    if len(groups) > _LAST_SCALARS:
        table.add_row(f"and {len(groups) - _LAST_SCALARS} more", "", "", "", "")
    return table


def _scalars(latest: list[tuple[str, Any, Any]]) -> Table:
    table = _table("scalar", "step", "value")
    for tag, step, value in latest[:_LAST_SCALARS]:
        table.add_row(clean(tag), _cell(step), number(value))
    if len(latest) > _LAST_SCALARS:
        table.add_row(f"and {len(latest) - _LAST_SCALARS} more", "", "")
    return table
