"""The end of the demo: a table, a plot, what was checked, and where to look."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import fsrun
from fsrun.cli.demo.claims import Checked, Evidence
from fsrun.cli.demo.plan import BEST, TEST_IMAGES, TRAIN_IMAGES, Plan
from fsrun.core import layout
from fsrun.core.ids import MAIN

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_PLOT_WIDTH = 100
_PLOT_HEIGHT = 13
_COLUMNS = ("step", "train/acc", "eval/acc", "95%", "eval/loss", "lag", "tries", "")
_NARROW_COLUMNS = ("step", "eval/acc", "lag", "")
_WIDE = 70
_ASCII = str.maketrans("─│┌┐└┘├┤┬┴┼", "-|+++++++++")


def table(evidence: Evidence, width: int) -> Table:
    """One line a checkpoint: the scores of both processes at its step, and how far ahead training was by then."""
    from rich import box
    from rich.table import Table

    columns = _COLUMNS if width >= _WIDE else _NARROW_COLUMNS
    found = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        found.add_column(column, justify="right" if column else "left")
    train = dict(zip(*(a.tolist() for a in evidence.reader.series("train/acc")), strict=True))
    best = evidence.best()
    for outcome in evidence.done:
        cells = _cells(outcome, train)
        is_best = best is not None and outcome["entry"] == best["entry"]
        cells[""] = "best" if is_best else ""
        found.add_row(*(cells[column] for column in columns), style="bold" if is_best else None)
    return found


def _cells(outcome: dict[str, Any], train: dict[int, float]) -> dict[str, str]:
    scores, step = outcome["scores"], outcome["step"]

    def score(tag: str, digits: int = 4) -> str:
        value = scores.get(tag)
        return f"{value:.{digits}f}" if isinstance(value, int | float) else "-"

    return {
        "step": str(step),
        "train/acc": f"{train[step]:.4f}" if step in train else "-",
        "eval/acc": score("eval/acc"),
        "95%": f"{score('eval/acc_low', 2)}-{score('eval/acc_high', 2)}",
        "eval/loss": score("eval/loss"),
        "lag": "-" if outcome["lag_steps"] is None else str(outcome["lag_steps"]),
        "tries": str(outcome["attempt"]),
    }


def plot(evidence: Evidence, console: Console, names: Sequence[str] = ("acc", "loss")) -> str:
    """Accuracy and loss of both processes, one below the other on the same axis of training steps."""
    utf = "utf" in console.encoding.lower()
    colours = console.is_terminal and console.color_system is not None
    width = min(console.width, _PLOT_WIDTH)
    pictures = [_picture(evidence, name, width, "braille" if utf else ".", colours) for name in names]
    text = "\n".join(pictures)
    return text if utf else text.translate(_ASCII)


def _picture(evidence: Evidence, name: str, width: int, marker: str, colours: bool) -> str:
    import plotext

    train, evaluated = (evidence.reader.series(f"{job}/{name}") for job in ("train", "eval"))
    figure = plotext.figure
    figure.clear()
    plotext.terminal.limit(False, False)
    figure.plot_size(width, _PLOT_HEIGHT)
    figure.theme("simple")
    for (steps, values), sign in ((train, marker), (evaluated, "O")):
        figure.draw(figure.signal(steps.tolist(), values.tolist(), marker=sign))
    # The first steps, from chance to something, would press all others against the edge.
    first = train[0] >= (evaluated[0].min() if len(evaluated[0]) else 0)
    shown = [*train[1][first].tolist(), *evaluated[1].tolist()]
    figure.ruler("x").lim(0, max([1, *train[0].tolist(), *evaluated[0].tolist()]))
    figure.ruler("y").lim(min(shown, default=0.0), max(shown, default=1.0))
    figure.title(f"train/{name} ({'⠶' if marker == 'braille' else marker})   eval/{name} (O)   by training step")
    return str(figure.build().string(colorless=not colours)).rstrip("\n")


def print_start(console: Console, path: str, plan: Plan) -> None:
    """Say what is about to happen, and how to watch it from another terminal."""
    count = len(plan.checkpoint_steps)
    console.print(
        f"One process trains on {TRAIN_IMAGES:,} images for {plan.steps} steps; another evaluates each of its {count} "
        f"checkpoints on {TEST_IMAGES} held-out images."
    )
    console.print(f"They share one folder: {_short(path)}\n")


def print_result(console: Console, evidence: Evidence, checked: Sequence[Checked]) -> None:
    """Print the table, the plot, the best checkpoint, and what was checked, with what was found where it fails."""
    console.print()
    console.print(table(evidence, console.width))
    console.print("lag: steps that training was ahead of the checkpoint when its evaluation was done\n")
    console.print(plot(evidence, console), no_wrap=True, overflow="ignore")
    console.print()
    best = evidence.best()
    if best is not None:
        score = best["scores"].get(BEST, float("nan"))
        console.print(f"Best checkpoint: {best['entry']}, step {best['step']}, {BEST} {score:.4f}\n")
    print_checked(console, checked)


def print_checked(console: Console, checked: Sequence[Checked]) -> None:
    """Print what was checked, with what was found where it does not hold."""
    console.print("Checked against the files of the run:")
    for claim in checked:
        mark = "ok " if claim.holds else "NO "
        console.print(f"  {mark} {claim.text}" + ("" if claim.holds else f" -- {claim.found}"))


def print_places(console: Console, evidence: Evidence, root: str | None) -> None:
    """Say where the run is and what to look at, as lines that work when pasted. ``root``: what ``ls`` must be told."""
    path = _short(evidence.path)
    quoted = shlex.quote(path)
    best = evidence.best()
    below = "" if root is None else f" {shlex.quote(_short(root))}"
    outcome = layout.outcome_name(best["entry"], best["attempt"]) if best else "*"
    commands = [
        (f"ls {quoted} {quoted}/jobs", "what there is, and who has been there"),
        (f"tail -n 3 {quoted}/{layout.SCALARS}/{layout.scalars_name(MAIN, 1)}", "the last points of the training"),
        (f"cat {quoted}/{layout.EVALS}/{shlex.quote(outcome)}", "the best evaluation"),
        (f"ls -l {quoted}/{layout.BEST}", "the checkpoint that is kept"),
        (f"cat {quoted}/{layout.RUN_VIEW}", "config, status and summary"),
        (f"{_fsrun()} show {quoted}", "all of it at a glance"),
        (f"{_fsrun()} ls{below}", "every run"),
    ]
    console.print(f"\nThe run is a folder of plain files: {path}")
    widest = max(len(command) for command, _ in commands)
    for command, what in commands:
        line = f"  {command:<{widest}}  # {what}"
        console.print(line if len(line) <= console.width else f"  # {what}\n  {command}")
    console.print(f"In a browser, with charts: {'; '.join((*_web(), f'{_fsrun()} up{below}'))}")


def _web() -> tuple[str, ...]:
    """What brings in that which the page needs, where it is missing."""
    if all(importlib.util.find_spec(name) for name in ("starlette", "uvicorn")):
        return ()
    setup = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(fsrun.__file__))), "tools", "setup")
    if os.path.isfile(setup):
        return (f"sh {shlex.quote(_short(setup))} web",)
    return (f"{shlex.quote(sys.executable)} -m pip install 'fsrun[web]'",)


def _fsrun() -> str:
    """How this command is called from here: by its name where the shell finds it, else by its path."""
    own = sys.argv[0]
    if os.path.basename(own) != "fsrun":
        return f"{shlex.quote(sys.executable)} -m fsrun"
    found = shutil.which("fsrun")
    return "fsrun" if found and os.path.samefile(found, own) else shlex.quote(_short(os.path.abspath(own)))


def _short(path: str) -> str:
    """A path as it is written from the working folder, where it stands below that."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
