"""Both processes of the demo that generates: found what they need, started, watched, checked, reported."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fsrun.cli.demo.jobs import Jobs
from fsrun.cli.demo.sums.plan import ANSWER_TOKENS, BEST, HELD_OUT, PROJECT, SET, SumsPlan, split, write_eval_set
from fsrun.cli.text import clean_lines
from fsrun.core.errors import FsrunError, UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from fsrun.cli.demo.claims import Evidence
    from fsrun.cli.demo.progress import Progress
    from fsrun.cli.demo.sums.claims import Compared
    from fsrun.run.create import Location

PYTHON_VARIABLE = "FSRUN_SGLANG_PYTHON"
_POLL = 0.2
_CPU_VARIABLES = {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
_CPU_FLAGS = {
    "device": "cpu",
    "attention-backend": "torch_native",
    "mem-fraction-static": "0.1",
    "max-total-tokens": "8192",
}


class SumsJobs(Jobs):
    """The training of the transformer, and its evaluation by a fleet of one engine on the CPU."""

    def __init__(self, root: str, run_id: str, plan: SumsPlan, python: str) -> None:
        super().__init__(root, run_id, _CPU_VARIABLES)
        self._plan, self._python = plan, python

    def start_trainer(self) -> None:
        """Start the training, which creates the run."""
        snapshots = os.path.join(self._folder.name, "snapshots")
        os.mkdir(snapshots)
        arguments = ["-m", "fsrun.cli.demo.sums.train", "--root", self._root, "--run", self._run_id]
        arguments += ["--snapshots", snapshots, "--steps", str(self._plan.steps), "--every", str(self._plan.every)]
        self._start("trainer", arguments)

    def start_evaluator(self) -> None:
        """Start ``fsrun eval`` with a fleet, as a user would."""
        data = os.path.join(self._folder.name, "sums.jsonl")
        write_eval_set(data)
        arguments = ["-m", "fsrun", "eval", f"{PROJECT}/{self._run_id}", "--root", self._root, "--eval-num-gpus", "1"]
        arguments += ["--sglang-python", self._python, "--eval-prompt-data", SET, data, "--eval-grader", "exact"]
        arguments += ["--eval-max-response-len", str(ANSWER_TOKENS), "--eval-temperature", "0"]
        arguments += ["--eval-sglang-dtype", "float32", "--eval-sglang-sleep-on-idle"]
        for name, value in _CPU_FLAGS.items():
            arguments += [f"--eval-sglang-{name}", value]
        arguments += ["--best", f"max:{BEST}", "--keep", "0", "--wait", "1m", "--linger", "1m"]
        self._start("evaluator", arguments)


def find_python(given: str | None, environ: dict[str, str], checkout: str) -> str:
    """The Python that has SGLang: as given, else $FSRUN_SGLANG_PYTHON, else what tools/sglang_cpu made.

    Raises ``UsageError`` that says how to get one.
    """
    for source, path in (("--sglang-python", given), (f"${PYTHON_VARIABLE}", environ.get(PYTHON_VARIABLE))):
        if path:
            found = shutil.which(os.path.expanduser(path))
            if found is None:
                raise UsageError(f"{source} {path}: no such program")
            return found
    tool = os.path.join(checkout, "tools", "sglang_cpu")
    if os.path.isfile(tool):
        with suppress(OSError, subprocess.SubprocessError):
            asked = subprocess.run([sys.executable, tool, "--path"], capture_output=True, text=True, timeout=60)
            path = asked.stdout.strip()
            if asked.returncode == 0 and os.access(path, os.X_OK):
                return path
    how = f"{shlex.quote(tool)} makes one (2.7 GB)" if os.path.isfile(tool) else "pip install sglang into one"
    raise UsageError(
        f"the demo that generates needs an environment with SGLang: give --sglang-python PATH or ${PYTHON_VARIABLE}; "
        f"{how}"
    )


def missing() -> list[str]:
    """Packages that the trainer needs and this Python lacks."""
    names = {"torch": "torch", "transformers": "transformers", "safetensors": "safetensors"}
    names |= {"aiohttp": "aiohttp", "numpy": "numpy"}
    return [package for name, package in names.items() if importlib.util.find_spec(name) is None]


def play(console: Console, where: Location, plan: SumsPlan, python: str, listed: str | None) -> int:
    """Run both processes to their end, compare, report; ``listed``: the root that ``ls`` has to be told."""
    from fsrun.cli.demo import claims as shared
    from fsrun.cli.demo import progress, report
    from fsrun.cli.demo.sums import claims

    started = time.monotonic()
    console.print(
        f"One process teaches a transformer of half a million weights to add, on {len(split()[0]):,} sums of two-digit "
        f"numbers; an engine of SGLang answers {HELD_OUT} others with each of {len(plan.checkpoint_steps)} snapshots."
    )
    console.print(f"They share one folder: {os.path.relpath(where.path)}\nThe engine starts in half a minute or so.\n")
    try:
        with SumsJobs(where.root, where.run, plan, python) as jobs, progress.make(console, plan) as shown:
            _watch(jobs, where.path, shown)
    except BaseException:
        console.print("Stopped; all processes have ended.")
        if os.path.isdir(where.path):
            console.print(f"What there is of the run stays in {where.path}")
        raise
    console.print("\nAsking transformers the same sums with the same snapshots, which are kept in best/.")
    evidence = shared.Evidence(where.path, time.time_ns(), BEST)
    compared = claims.compare(evidence)
    checked = list(claims.check(evidence, plan, compared))
    console.print()
    console.print(_table(evidence, compared))
    console.print("lag: steps that training was ahead of the snapshot when its evaluation was done\n")
    if importlib.util.find_spec("plotext") is not None:
        console.print(report.plot(evidence, console, (SET,)), no_wrap=True, overflow="ignore")
        console.print()
    report.print_checked(console, checked)
    report.print_places(console, evidence, listed)
    console.print(f"\nTook {time.monotonic() - started:.0f} s.")
    return 0 if all(claim.holds for claim in checked) else 1


def _watch(jobs: SumsJobs, path: str, shown: Progress) -> None:
    """Show progress until both processes have ended."""
    from fsrun.cli.demo.watch import look

    while True:
        ended = {name: jobs.ended(name) for name in ("trainer", "evaluator")}
        shown.update(look(path))
        for name, code in ended.items():
            if code:
                shown.say(clean_lines(jobs.last_lines(name)))
                raise FsrunError(f"the demo's {name} ended with exit code {code}; its last lines stand above")
        if None not in ended.values():
            return
        time.sleep(_POLL)


def _table(evidence: Evidence, compared: list[Compared]) -> Table:
    """One line a snapshot."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in ("step", f"train/{SET}", BEST, "transformers", "same answers", "lag", "seconds"):
        table.add_column(column, justify="right")
    train = dict(zip(*(a.tolist() for a in evidence.reader.series(f"train/{SET}")), strict=True))
    outcomes: dict[str, dict[str, Any]] = {outcome["entry"]: outcome for outcome in evidence.done}
    for found in compared:
        outcome = outcomes[found.entry]
        table.add_row(
            str(found.step),
            f"{train[found.step]:.3f}" if found.step in train else "-",
            f"{found.fleet:.3f}",
            f"{found.transformers:.3f}",
            f"{found.same}/{HELD_OUT}",
            "-" if outcome["lag_steps"] is None else str(outcome["lag_steps"]),
            "-" if outcome["duration_s"] is None else f"{outcome['duration_s']:.1f}",
        )
    return table
