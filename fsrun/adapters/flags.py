"""Flags of evaluation that people write into their own programs, and engine settings that are passed through.

Does: ``add_eval_args`` for a trainer's argparse; ``--sglang-NAME`` and ``--eval-sglang-NAME`` for any NAME, taken out
of a command line; what a fleet's engines get of the three places that say something. Leaves to others: the options of
``fsrun eval`` (``cli``), the command line of an engine (``fleet.settings``).

Engine settings, the first that names one counts: ``--eval-sglang-*``, then ``--sglang-*`` on the same command line,
then what the trainer recorded as ``sglang_*`` in the run's config. ``=false`` takes a switch back that a later place
turned on.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import orjson

SGLANG = "--sglang-"
EVAL_SGLANG = "--eval-sglang-"

Value = str | list[str] | Literal[True]
"""Of an engine setting: text, several texts, or True for a switch."""

NOT_INHERITED = frozenset((
    "model", "model-path", "host", "port", "weight-version", "served-model-name", "python", "nccl-port",
    "dist-init-addr", "nnodes", "node-rank", "base-gpu-id", "gpu-id-step", "tp", "tp-size",
    "tensor-parallel-size", "dp", "dp-size", "data-parallel-size", "pp", "pp-size", "pipeline-parallel-size",
    "ep", "ep-size", "expert-parallel-size", "enable-dp-attention", "load-format", "server-concurrency",
))  # fmt: skip
"""Of the trainer's own engines: where they stand, and how many GPUs they share; a fleet's are others."""

_NUMBER = re.compile(r"-[0-9.]")


def add_eval_args(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add a trainer's flags of evaluation to its parser; returns it.

    ``--eval-interval N``, ``--eval-first``, ``--eval-last`` (with ``fsrun.is_due``), ``--eval-queue DIR`` (for
    ``init(handover=)``), ``--eval-hf-dir DIR`` (for ``fsrun.snapshot``), and ``--sglang-NAME VALUE`` for any NAME that
    the parser does not know itself: it becomes ``args.sglang_name``, so that ``init(config=vars(args))`` records it and
    the engines of a fleet start with it.
    """
    group = parser.add_argument_group("evaluation")
    group.add_argument(
        "--eval-interval", type=_interval, metavar="N", help="evaluate every N updates (default: no evaluation)"
    )
    group.add_argument(
        "--eval-first", action=argparse.BooleanOptionalAction, default=True,
        help="whether step 0, the untrained model, is evaluated too (default: yes)",
    )  # fmt: skip
    group.add_argument(
        "--eval-last", action=argparse.BooleanOptionalAction, default=True,
        help="whether the last step is evaluated where the interval does not fall on it (default: yes)",
    )  # fmt: skip
    group.add_argument(
        "--eval-queue", metavar="DIR", help="folder for checkpoints that wait, instead of the run's own: "
        "init(handover=DIR)"
    )  # fmt: skip
    group.add_argument(
        "--eval-hf-dir", metavar="DIR", help="folder for snapshots of the weights, such as one in /dev/shm: "
        "fsrun.snapshot(model, DIR, step)"
    )  # fmt: skip
    parse = parser.parse_known_args

    def parse_known_args(args: Sequence[str] | None = None, namespace: Any = None, **more: Any) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        known = set(parser._option_string_actions)
        greedy = all(action.option_strings for action in parser._actions)
        rest, settings = take(given, SGLANG, known=known, greedy=greedy)
        found, left = parse(rest, namespace, **more)
        for name, value in settings.items():
            setattr(found, f"sglang_{name.replace('-', '_')}", value)
        return found, left

    # argparse has no options of open names; all its ways to parse lead through this method of the parser.
    parser.parse_known_args = parse_known_args  # type: ignore[method-assign, assignment]
    return parser


def take(
    arguments: Sequence[str], prefix: str, *, known: Collection[str] = (), greedy: bool = False
) -> tuple[list[str], dict[str, Value]]:
    """Take ``PREFIXname value`` out of a command line: the other arguments, and the values by name with dashes.

    ``known``: options that begin so and are no settings. ``greedy``: whether a setting takes all values up to the
    next option; else it takes one. A setting without a value is a switch.
    """
    rest: list[str] = []
    found: dict[str, Value] = {}
    left = list(arguments)
    while left:
        argument = left.pop(0)
        if argument == "--":
            return [*rest, argument, *left], found
        option, has_value, value = argument.partition("=")
        if not option.startswith(prefix) or option in known or len(option) == len(prefix):
            rest.append(argument)
            continue
        name = option[len(prefix) :].replace("_", "-")
        values = [value] if has_value else []
        while not has_value and left and _is_value(left[0]) and (greedy or not values):
            values.append(left.pop(0))
        found[name] = True if not values else values[0] if len(values) == 1 else values
    return rest, found


def _is_value(argument: str) -> bool:
    return not argument.startswith("-") or argument == "-" or _NUMBER.match(argument) is not None


def recorded(config: Mapping[str, Any]) -> dict[str, Value]:
    """The engine settings in a trainer's config: ``sglang_*`` at its top, or one level below."""
    found: dict[str, Value] = {}
    places = [inner for inner in config.values() if isinstance(inner, Mapping)]
    for place in (*places, config):
        for key, value in place.items():
            name = str(key).replace("_", "-").lower()
            if not name.startswith("sglang-") or value is None or value is False or value == "***":
                continue
            read = _value(value)
            if read is not None:
                found[name.removeprefix("sglang-")] = read
    return found


def _value(value: object) -> Value | None:
    if value is True:
        return True
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, Mapping):
        return orjson.dumps(value).decode()
    if isinstance(value, list) and value:
        return [str(item) for item in value]
    return None


def engine_settings(
    config: Mapping[str, Any], plain: Mapping[str, Value], own: Mapping[str, Value]
) -> dict[str, Value]:
    """What the engines of a fleet are started with: ``own`` over ``plain`` over the trainer's ``config``."""
    found: dict[str, Value] = {}
    for inherited in (recorded(config), plain):
        for name, value in inherited.items():
            if name not in NOT_INHERITED and not name.startswith("router-"):
                found[name] = value
    found.update(own)
    return {name: value for name, value in found.items() if not _is_off(value)}


def _is_off(value: Value) -> bool:
    return isinstance(value, str) and value.lower() == "false"


def command_line(settings: Mapping[str, Value]) -> tuple[str, ...]:
    """Engine settings as arguments of ``sglang.launch_server``."""
    arguments: list[str] = []
    for name, value in settings.items():
        if value is True:
            arguments.append(f"--{name}")
        elif isinstance(value, list):
            arguments += [f"--{name}", *value]
        else:
            # One argument where the value could be taken for an option.
            arguments += [f"--{name}={value}"] if value.startswith("-") else [f"--{name}", value]
    return tuple(arguments)


def _interval(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}: at least 1; leave it out where nothing is evaluated")
    return number
