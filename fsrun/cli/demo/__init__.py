"""``fsrun demo``: a training and an evaluation, two processes that share a run folder, on real images in seconds."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click

import fsrun
from fsrun.cli.demo.plan import PROJECT, Plan
from fsrun.cli.text import clean_lines
from fsrun.core.errors import FsrunError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from fsrun.cli.demo.jobs import Jobs
    from fsrun.cli.demo.progress import Progress
    from fsrun.core.queue import Claim
    from fsrun.run.create import Location

_POLL = 0.1
_FILE_WIDTH = 90
"""Columns of what is printed into a file or a pipe."""


@click.command(short_help="Try it: train and evaluate on real images.")
@click.option("--crash", is_flag=True, help="Kill the evaluator halfway (SIGKILL) and start it again.")
@click.option("--torch", is_flag=True, help="Train a network of torch instead of scikit-learn's own.")
@click.option("--generate", is_flag=True, help="Teach a transformer to add; an engine of SGLang evaluates it.")
@click.option("--sglang-python", metavar="PATH",
              help="With --generate: a Python that has SGLang.  [default: $FSRUN_SGLANG_PYTHON]")  # fmt: skip
@click.option("--root", metavar="DIR", help="Folder of all runs.  [default: $FSRUN_ROOT, else ./runs]")
@click.option(
    "--epochs", type=click.IntRange(4, 10_000), default=Plan().epochs, show_default=True, metavar="N",
    help="Passes over the training images.",
)  # fmt: skip
def command(crash: bool, torch: bool, generate: bool, sglang_python: str | None, root: str | None, epochs: int) -> int:
    """Train a small network on 1,797 images of handwritten digits, which scikit-learn brings along.

    One process trains and hands over checkpoints; a second one evaluates each of them on held-out images. At the end
    stand both curves on one axis, the best checkpoint, and where the files are. With --crash the evaluator is killed
    while it holds a checkpoint, and started again: every checkpoint is still evaluated and counted once.

    With --generate a small transformer learns to add two-digit numbers, and a fleet of one SGLang engine on the CPU
    answers held-out sums with snapshot after snapshot; transformers then has to give the same answers.

    Exit code 0: everything was as said, checked against the files. 1: something was not.
    """
    python = _engine_python(sglang_python, crash=crash, torch=torch) if generate else None
    if python is None:
        if sglang_python is not None:
            raise UsageError("--sglang-python goes with --generate")
        _require(torch)
    from rich.console import Console

    from fsrun.cli.demo.sums import plan as sums
    from fsrun.run.create import locate, new_run_id
    from fsrun.run.roots import ROOT_VARIABLE

    now = time.time_ns()
    where = locate(root, PROJECT if python is None else sums.PROJECT, new_run_id(now), os.environ, now)
    _make(where.root)
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True, width=_FILE_WIDTH)
    listed = None if root is None and not os.environ.get(ROOT_VARIABLE) else where.root
    if python is not None:
        from fsrun.cli.demo.sums.play import play

        return play(console, where, sums.SumsPlan(), python, listed)
    return _play(console, where, Plan(epochs), torch=torch, crash=crash, listed=listed)


def _engine_python(given: str | None, *, crash: bool, torch: bool) -> str:
    """The Python that has SGLang; says in one line what is missing before anything is started."""
    from fsrun.cli.demo.sums import play

    if crash or torch:
        raise UsageError("--generate is a demo of its own: give it without --crash and --torch")
    missing = play.missing()
    if missing:
        pip = f"{shlex.quote(sys.executable)} -m pip install"
        extras = f"{_source()}[demo,torch,sglang]"
        raise FsrunError(f"fsrun demo --generate needs {', '.join(missing)}: {pip} {shlex.quote(extras)}")
    return play.find_python(given, dict(os.environ), _checkout())


def _require(torch: bool) -> None:
    """Say in one line what is missing, and how to get it, before anything is started."""
    pip = f"{shlex.quote(sys.executable)} -m pip install"
    source = _source()
    missing = [] if importlib.util.find_spec("sklearn") else ["scikit-learn"]
    missing += [] if _can_plot() else ["plotext 6.1 or newer"]
    if missing:
        raise FsrunError(
            f"the demo needs {' and '.join(missing)}: {pip} {shlex.quote(f'{source}[demo]')}, or, "
            f"in the checkout, sh tools/demo"
        )
    if torch and importlib.util.find_spec("torch") is None:
        raise FsrunError(f"fsrun demo --torch needs torch: {pip} {shlex.quote(f'{source}[torch]')}")


def _source() -> str:
    """The folder that this fsrun was installed from, which pip remembers, or the checkout that it runs in."""
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    checkout = _checkout()
    if os.path.isfile(os.path.join(checkout, "tools", "demo")):
        return checkout
    with suppress(PackageNotFoundError, ValueError, KeyError, TypeError):
        origin = urlsplit(json.loads(distribution("fsrun").read_text("direct_url.json") or "{}")["url"])
        if origin.scheme == "file":
            return unquote(origin.path)
    return "/path/to/checkout"


def _checkout() -> str:
    """The folder that this package stands in."""
    return os.path.dirname(os.path.dirname(os.path.abspath(fsrun.__file__)))


def _can_plot() -> bool:
    try:
        import plotext
    except ImportError:
        return False
    return hasattr(getattr(plotext, "figure", None), "signal")


def _make(root: str) -> None:
    try:
        os.makedirs(root, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{root}: {error.strerror}; give another --root") from error
    if not os.access(root, os.W_OK | os.X_OK):
        raise UsageError(f"{root} cannot be written; give another --root")


def _play(console: Console, where: Location, plan: Plan, *, torch: bool, crash: bool, listed: str | None) -> int:
    """Run both processes to their end and report. ``listed``: the root that ``ls`` has to be told."""
    from fsrun.cli.demo import claims, progress, report
    from fsrun.cli.demo.jobs import DigitJobs

    started = time.monotonic()
    report.print_start(console, where.path, plan)
    try:
        with DigitJobs(where.root, where.run, plan, torch=torch) as jobs, progress.make(console, plan) as shown:
            killed = _watch(jobs, where.path, plan, shown, crash)
    except BaseException:
        console.print("Stopped; both processes have ended.")
        if os.path.isdir(where.path):
            console.print(f"What there is of the run stays in {where.path}")
        raise
    evidence = claims.Evidence(where.path, time.time_ns())
    checked = list(claims.check(evidence, plan, killed if crash else None))
    report.print_result(console, evidence, checked)
    report.print_places(console, evidence, listed)
    console.print(f"\nTook {time.monotonic() - started:.0f} s.")
    return 0 if all(claim.holds for claim in checked) else 1


def _watch(jobs: Jobs, path: str, plan: Plan, shown: Progress, crash: bool) -> list[Claim]:
    """Show progress until both processes have ended; returns what killed evaluators held."""
    from fsrun.cli.demo.watch import look

    killed: list[Claim] = []
    before: Claim | None = None
    while True:
        ended = [jobs.ended("trainer"), jobs.ended("evaluator")]
        seen = look(path)
        shown.update(seen)
        for name, code in zip(("trainer", "evaluator"), ended, strict=True):
            if code:
                shown.say(clean_lines(jobs.last_lines(name)))
                raise FsrunError(f"the demo's {name} ended with exit code {code}; its last lines stand above")
        if None not in ended:
            return killed
        halfway = len(seen.done) >= len(plan.checkpoint_steps) // 2
        # A claim that was not there a moment ago: its evaluation is in the middle when the signal comes.
        if crash and not killed and halfway and seen.held and seen.held != before:
            pid = jobs.kill_evaluator()
            left = look(path)
            # It may have come to its outcome just before; then nothing was lost, and the next one is tried.
            if left.held:
                killed.append(left.held)
                shown.say(
                    f"Killed the evaluator (SIGKILL to process {pid}) while it held {left.held.entry}; "
                    f"training is at step {left.step}. Starting it again."
                )
            jobs.start_evaluator()
        before = seen.held
        time.sleep(_POLL)
