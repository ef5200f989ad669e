"""The options of ``fsrun eval``: in groups, those first that decide; engine settings of any name are passed through.

Leaves to others: which of them go together (``evalplace``), what settings of a set mean (``adapters.settings``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from fsrun.adapters import flags
from fsrun.cli.options import DURATION

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

PLACE = "Place of evaluation, exactly one"
DATA = "Eval data, for engines and fleets"
FIRST = "What matters next"
SAMPLING = "Sampling and grading, where a set in --eval-config does not say otherwise"
FLEET = "Fleet"
CHECKPOINTS = "Checkpoints and run"

GROUPS = (PLACE, DATA, FIRST, SAMPLING, FLEET, CHECKPOINTS)

SET_OPTIONS = {
    "eval_samples": "samples",
    "eval_pass_k": "pass_k",
    "eval_temperature": "temperature",
    "eval_top_p": "top_p",
    "eval_top_k": "top_k",
    "eval_max_response_len": "max_response_len",
    "eval_stop": "stop",
    "eval_system": "system",
    "eval_chat_template": "chat_template",
    "eval_input_key": "input_key",
    "eval_label_key": "label_key",
    "eval_grader": "grader",
    "eval_limit": "limit",
    "eval_max_ungraded": "max_ungraded",
}
"""Parameter -> the setting of every set that it is."""

PLAN_OPTIONS = {
    "eval_concurrency": "concurrency",
    "eval_tokenizer": "tokenizer",
    "eval_seed": "seed",
    "eval_max_failed": "max_failed",
    "eval_grade_limit": "grade_limit",
    "keep_samples": "keep_samples",
}
"""Parameter -> the field of the plan that it is."""

DATA_OPTIONS = (
    "eval_prompt_data", "eval_config", *SET_OPTIONS, "eval_concurrency", "eval_tokenizer", "eval_seed",
    "eval_max_failed", "eval_grade_limit",
)  # fmt: skip
"""Those that mean nothing to a function or a command."""

_PASSED = (
    "Passed to its engines as --NAME VALUE; counts before --sglang-NAME given here, and that before what the trainer "
    "recorded as sglang_name."
)
FLEET_OPTIONS = ("eval_num_gpus_per_engine", "eval_hf_dir", "eval_router_command", "sglang_python")


class Option(click.Option):
    """An option that belongs to a group of the help."""

    def __init__(self, *arguments: Any, group: str, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.group = group


class EvalCommand(click.Command):
    """Takes ``--eval-sglang-*`` and ``--sglang-*`` out of the arguments; shows options in their groups."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; where RUN comes first, an engine setting may have several values."""
        greedy = bool(args) and not args[0].startswith("-")
        args = _pairs(args) if greedy else args
        args, own = flags.take(args, flags.EVAL_SGLANG, greedy=greedy)
        args, plain = flags.take(args, flags.SGLANG, known=("--sglang-python",), greedy=greedy)
        rest = super().parse_args(ctx, args)
        ctx.params["eval_sglang"], ctx.params["sglang"] = own, plain
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section a group."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                groups[getattr(parameter, "group", CHECKPOINTS)].append(record)
        groups[FLEET].append(("--eval-sglang-NAME VALUE", _PASSED))
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)


def _pairs(arguments: list[str]) -> list[str]:
    """``--eval-prompt-data a A b B`` as two options: several pairs behind one are what people know."""
    made: list[str] = []
    left = list(arguments)
    while left:
        made.append(left.pop(0))
        if made[-1] != "--eval-prompt-data":
            continue
        count = next((i for i, word in enumerate(left) if word.startswith("-")), len(left))
        for at in range(0, count, 2):
            made += ["--eval-prompt-data"] if at else []
            made += left[at : min(at + 2, count)]
        del left[:count]
    return made


def _option(*names: str, group: str, **more: Any) -> Callable[[Decorated], Decorated]:
    return click.option(*names, cls=Option, group=group, **more)


# In the order of the help.
_OPTIONS = (
    _option("--function", group=PLACE, metavar="F.py:NAME",
            help="Your function: NAME(path) or NAME(path, context) returns a dict of scores."),
    _option("--command", "line", group=PLACE, metavar="CMD",
            help="Your command: 'CMD {path} {out}' writes a JSON object of scores to {out}."),
    _option("--router", group=PLACE, metavar="URL", help="The training engines, behind their router."),
    _option("--engine", "engines", group=PLACE, metavar="URL", multiple=True,
            help="The training engines, one by one; repeatable."),
    _option("--eval-num-gpus", group=PLACE, type=click.IntRange(min=1), metavar="N",
            help="A fleet: SGLang engines on N GPUs of this host, started here."),
    _option("--eval-engine", "eval_engines", group=PLACE, metavar="URL", multiple=True,
            help="A fleet of SGLang engines that run already, on any host that has the checkpoints; repeatable."),
    _option("--eval-unmarked", group=PLACE, is_flag=True, default=None,
            help="With training engines: evaluate entries that are no markers too. You say that the engines hold the "
                 "weights of each."),
    _option("--eval-prompt-data", group=DATA, nargs=2, multiple=True, metavar="NAME PATH",
            help="A set as jsonl or Parquet, its points at eval/NAME; repeatable."),
    _option("--eval-config", group=DATA, metavar="FILE.yaml", help="Sets with settings of their own."),
    _option("--check", group=FIRST, is_flag=True,
            help="Try all of it now, without a run: engines, one answer, eval data. Exit code 0 or 1."),
    _option("--best", group=FIRST, metavar="RULE",
            help="What is kept: max:TAG or min:TAG, such as max:acc for eval/acc."),
    _option("--keep", group=FIRST, type=click.IntRange(min=0), metavar="K",
            help="With --best: how many are kept; 0 keeps all.  [default: 1]"),
    _option("--time-limit", group=FIRST, type=DURATION, metavar="TIME",
            help="The longest that one entry may take: 90s, 10m, 2h."),
    _option("--keep-samples", group=FIRST, type=click.IntRange(min=0), metavar="N",
            help="How many prompts with their answers are kept a set; 0: none.  [default: all]"),
    _option("--eval-samples", "--eval-n-samples-per-eval-prompt", group=SAMPLING, metavar="N",
            help="Answers a prompt.  [default: 1]"),
    _option("--eval-pass-k", group=SAMPLING, metavar="K,...",
            help="Which pass@k are told.  [default: that of all samples]"),
    _option("--eval-temperature", group=SAMPLING, metavar="X",
            help="[default: 0, greedy; 1 where there are several samples]"),
    _option("--eval-top-p", group=SAMPLING, metavar="X", help="[default: 1]"),
    _option("--eval-top-k", group=SAMPLING, metavar="N", help="[default: -1, all]"),
    _option("--eval-max-response-len", group=SAMPLING, metavar="N",
            help="The longest answer in tokens.  [default: 1024]"),
    _option("--eval-stop", group=SAMPLING, metavar="TEXT", multiple=True, help="Ends an answer; repeatable."),
    _option("--eval-system", group=SAMPLING, metavar="TEXT",
            help="A system prompt, for prompts that have none."),
    _option("--eval-chat-template", group=SAMPLING, metavar="FILE",
            help="A Jinja template, or none: prompts as they are.  [default: the model's]"),
    _option("--eval-tokenizer", group=SAMPLING, metavar="DIR",
            help="[default: that of the checkpoint, or of the engine's model]"),
    _option("--eval-input-key", group=SAMPLING, metavar="KEY",
            help="Where the prompt stands; a.b goes inside.  [default: found]"),
    _option("--eval-label-key", group=SAMPLING, metavar="KEY", help="Where the label stands.  [default: found]"),
    _option("--eval-grader", group=SAMPLING, metavar="NAME",
            help="exact, numeric, math, choice or FILE.py:NAME.  [default: by the data]"),
    _option("--eval-limit", group=SAMPLING, metavar="N", help="The first N rows of each set alone."),
    _option("--eval-seed", group=SAMPLING, type=int, metavar="N",
            help="The same random choices at each checkpoint, of engines that run with "
                 "--enable-deterministic-inference, as a fleet's own do on GPUs; others ignore it."),
    _option("--eval-concurrency", group=SAMPLING, type=click.IntRange(min=1), metavar="N",
            help="Requests in flight.  [default: 64]"),
    _option("--eval-max-failed", group=SAMPLING, type=click.FloatRange(0, 1), metavar="SHARE",
            help="The largest share of a set without an answer that still gives a score.  [default: 0.05]"),
    _option("--eval-max-ungraded", group=SAMPLING, metavar="SHARE",
            help="The largest share of a set that its grader may give up on, and there is a score.  [default: 0.05]"),
    _option("--eval-grade-limit", group=SAMPLING, type=DURATION, metavar="TIME",
            help="The longest that grading one answer may take; beyond, it counts as ungraded.  [default: 10s]"),
    _option("--eval-num-gpus-per-engine", group=FLEET, type=click.IntRange(min=1), metavar="N",
            help="GPUs of one engine; divides --eval-num-gpus.  [default: 1]"),
    _option("--eval-hf-dir", group=FLEET, metavar="DIR",
            help="Where the trainer puts its snapshots: --check looks whether it can be used."),
    _option("--sglang-python", group=FLEET, metavar="PATH",
            help="Python of the environment that has SGLang.  [default: $FSRUN_SGLANG_PYTHON, else this one]"),
    _option("--eval-router-command", group=FLEET, metavar="NAME",
            help="sglang-router, smg, or a command line of one.  [default: sglang-router]"),
    _option("--job", group=CHECKPOINTS, default="eval", show_default=True, metavar="JOB",
            help="Name of this side job."),
    _option("--order", group=CHECKPOINTS, type=click.Choice(["oldest", "newest", "latest"]), default="oldest",
            show_default=True, help="Which entry comes next; latest skips all but the newest."),
    _option("--max-waiting", group=CHECKPOINTS, type=click.IntRange(min=1), metavar="N",
            help="Skip what waits beyond N, recorded as skipped."),
    _option("--drop", group=CHECKPOINTS, type=click.Choice(["oldest", "newest"]), default="oldest",
            show_default=True, help="Which are skipped."),
    _option("--once", group=CHECKPOINTS, is_flag=True, help="Evaluate what waits now, and end."),
    _option("--linger", group=CHECKPOINTS, type=DURATION, default="10m", show_default=True, metavar="TIME",
            help="How long to wait for a crashed or preempted main job to return; at least 4 timeouts."),
    _option("--wait", group=CHECKPOINTS, type=DURATION, metavar="TIME",
            help="How long to wait for the run to appear."),
    _option("--timeout", group=CHECKPOINTS, type=float, metavar="SECONDS",
            help="Liveness timeout of this job.  [default: 30]"),
)  # fmt: skip


def eval_options(function: Decorated) -> Decorated:
    """All options of ``fsrun eval`` but ``--root``."""
    for add in reversed(_OPTIONS):
        function = add(function)
    return function
