"""Where ``fsrun eval`` evaluates: exactly one place, its settings found to be possible before anything starts.

Does: which place the options mean, what does not go together (one ``UsageError``), the evaluator, what is printed and
recorded of the plan. Leaves to others: evaluating (``adapters``), the loop over checkpoints (``eval``).
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fsrun.cli.evaloptions import DATA_OPTIONS, FLEET_OPTIONS, PLAN_OPTIONS, SET_OPTIONS
from fsrun.cli.text import clean, say
from fsrun.core.errors import UsageError
from fsrun.core.redaction import redact_argv

if TYPE_CHECKING:
    from fsrun.adapters.evaluation import Evaluator
    from fsrun.adapters.fleet import FleetSettings
    from fsrun.adapters.measure import Progress
    from fsrun.adapters.planning import Planned

TELL_EVERY = 30.0
"""Seconds between two lines about one evaluation."""
API_KEY = "FSRUN_EVAL_API_KEY"
ADMIN_KEY = "FSRUN_EVAL_ADMIN_API_KEY"
PYTHON = "FSRUN_SGLANG_PYTHON"
_PLACES = {
    "function": "--function",
    "line": "--command",
    "router": "--router",
    "engines": "--engine",
    "eval_num_gpus": "--eval-num-gpus",
    "eval_engines": "--eval-engine",
}
_KINDS = {
    "function": "function",
    "line": "command",
    "router": "engines",
    "engines": "engines",
    "eval_num_gpus": "fleet",
    "eval_engines": "fleet",
}
_OWN = "--function F.py:NAME, --command 'CMD {path} {out}'"
_ALL = f"{_OWN}, --router URL or --engine URL (the training engines), --eval-num-gpus N or --eval-engine URL (a fleet)"
_NAMES = {"engines": "the training engines", "fleet": "a fleet", "function": "a function", "command": "a command"}


class Teller:
    """Says now and then how far a long evaluation is."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said = clock()
        self._done = 0

    def __call__(self, progress: Progress) -> None:
        """Say it, where the last time is long enough ago."""
        now = self._clock()
        if progress.done < self._done:  # another evaluation
            self._said = now
        self._done = progress.done
        if now - self._said < TELL_EVERY or progress.done >= progress.total:
            return
        self._said = now
        failed = f", {progress.failed} without one" if progress.failed else ""
        say(f"{progress.done} of {progress.total} answers{failed}")


@dataclass(frozen=True, slots=True)
class Place:
    """A place that can be started: ``kind`` is ``function``, ``command``, ``engines`` or ``fleet``."""

    kind: str
    options: Mapping[str, Any]
    planned: Planned | None
    """Engines and fleets have one, but for a check without eval data."""


def choose(options: Mapping[str, Any]) -> Place:
    """Find the place and its plan; ``UsageError`` where options do not go together or the eval data cannot be used."""
    given = [name for name in _PLACES if options[name]]
    kinds = list(dict.fromkeys(_KINDS[name] for name in given))
    if not kinds:
        raise UsageError(f"give exactly one of the places of evaluation: {_ALL}")
    if len(kinds) > 1:
        flags = " and ".join(_PLACES[name] for name in given)
        raise UsageError(f"give exactly one of the places of evaluation, not {flags}: {_ALL}")
    if len(given) > 1:
        raise UsageError(f"give exactly one of {' and '.join(_PLACES[name] for name in given)}")
    kind = kinds[0]
    if kind != "engines":
        _refuse(options, ("eval_unmarked",), kind, "goes with the training engines (--router or --engine)")
    if kind != "fleet":
        _refuse(options, FLEET_OPTIONS, kind, "goes with a fleet (--eval-num-gpus N or --eval-engine URL)")
        for name, prefix in (("eval_sglang", "--eval-sglang-"), ("sglang", "--sglang-")):
            if options[name]:
                flag = prefix + next(iter(options[name]))
                raise UsageError(
                    f"{flag} goes with a fleet (--eval-num-gpus N): {_NAMES[kind]} is not started by fsrun"
                )
    if kind in ("function", "command"):
        _refuse(options, DATA_OPTIONS, kind, "goes with engines or a fleet")
        return Place(kind, options, None)
    _need_packages(kind)
    _check_urls(options)
    if kind == "fleet":
        fleet_settings(options, {})
    has_data = options["eval_prompt_data"] or options["eval_config"] is not None
    # A check may ask whether engines answer, before there is anything to ask them.
    return Place(kind, options, _plan(options) if has_data or not options["check"] else None)


def _refuse(options: Mapping[str, Any], names: Sequence[str], kind: str, why: str) -> None:
    for name in names:
        if options[name] not in (None, ()):
            raise UsageError(f"--{name.replace('_', '-')} {why}; {_NAMES[kind]} has no use for it")


def _check_urls(options: Mapping[str, Any]) -> None:
    """Refuse what is no URL, or has a password in it, before any of it is shown or recorded."""
    from fsrun.adapters.http import base_url

    for url in (options["router"], *options["engines"], *options["eval_engines"]):
        if url:
            base_url(url)


def _need_packages(kind: str) -> None:
    for package in ("aiohttp", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise UsageError(f"evaluation on {_NAMES[kind]} needs {package}: pip install 'fsrun[sglang]'")


def _plan(options: Mapping[str, Any]) -> Planned:
    from fsrun.adapters import planfile, planning
    from fsrun.adapters.settings import SetSource, read_settings

    sources = [SetSource(name, path, {}, "--eval-prompt-data") for name, path in options["eval_prompt_data"]]
    if options["eval_config"] is not None:
        sources += planfile.read(options["eval_config"])
    if not sources:
        raise UsageError("no eval data: give --eval-prompt-data NAME PATH, or --eval-config FILE.yaml")
    said: dict[str, Any] = {}
    for option, setting in SET_OPTIONS.items():
        if options[option] not in (None, ()):
            said.update(read_settings({setting: options[option]}, f"--{option.replace('_', '-')}"))
    shared = {field: options[name] for name, field in PLAN_OPTIONS.items() if options[name] is not None}
    if os.path.isdir(shared.get("tokenizer", "")):
        shared["tokenizer"] = os.path.abspath(shared["tokenizer"])
    return planning.make(sources, said, shared)


def fleet_settings(
    options: Mapping[str, Any], config: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> FleetSettings:
    """``config``: what the trainer recorded."""
    from fsrun.adapters import flags
    from fsrun.adapters.fleet import FleetSettings

    arguments: tuple[str, ...] = ()
    if options["eval_engines"]:
        if options["eval_sglang"] or options["sglang"]:
            raise UsageError("--eval-sglang-* goes with --eval-num-gpus: engines given by --eval-engine run already")
        if options["eval_num_gpus_per_engine"] is not None:
            raise UsageError("--eval-num-gpus-per-engine goes with --eval-num-gpus: given engines have their GPUs")
    else:
        arguments = flags.command_line(flags.engine_settings(config, options["sglang"], options["eval_sglang"]))
    more = {} if options["eval_router_command"] is None else {"router_command": options["eval_router_command"]}
    return FleetSettings(
        num_gpus=options["eval_num_gpus"] or 0,
        gpus_per_engine=_gpus_per_engine(options),
        urls=tuple(options["eval_engines"]),
        sglang_python=options["sglang_python"] or (environment or {}).get(PYTHON),
        sglang_args=arguments,
        **more,
    )


def _gpus_per_engine(options: Mapping[str, Any]) -> int:
    """As given, else as many as its own settings of parallelism need."""
    own, given = options["eval_sglang"], options["eval_num_gpus_per_engine"]
    needed = 1
    for names in (("tp", "tp-size", "tensor-parallel-size"), ("pp", "pp-size", "pipeline-parallel-size")):
        value = next((own[name] for name in names if name in own), "1")
        needed *= int(value) if isinstance(value, str) and value.isdigit() else 1
    if given is not None and needed > given:
        raise UsageError(f"--eval-num-gpus-per-engine {given}: --eval-sglang-* settings need {needed} GPUs an engine")
    return given or needed


def make(place: Place, config: Mapping[str, Any], environment: Mapping[str, str]) -> Evaluator:
    """The evaluator of a place; nothing of it is started yet. ``config``: what the trainer recorded."""
    from fsrun.adapters.plan import EvalPlan

    options = place.options
    if place.kind == "function":
        from fsrun.adapters.function import FunctionEvaluator

        return FunctionEvaluator(options["function"], limit=options["time_limit"])
    if place.kind == "command":
        from fsrun.adapters.command import CommandEvaluator

        return CommandEvaluator(options["line"], limit=options["time_limit"])
    plan = EvalPlan(()) if place.planned is None else place.planned.plan
    key, admin = environment.get(API_KEY) or None, environment.get(ADMIN_KEY) or None
    if place.kind == "engines":
        from fsrun.adapters.engines import EnginesEvaluator

        return EnginesEvaluator(
            plan,
            options["engines"],
            options["router"],
            api_key=key,
            admin_key=admin,
            unmarked=bool(options["eval_unmarked"]),
            limit=options["time_limit"],
            progress=Teller(),
        )
    from fsrun.adapters.fleet.evaluator import FleetEvaluator

    settings = fleet_settings(options, config, environment)
    return FleetEvaluator(plan, settings, limit=options["time_limit"], api_key=key, admin_key=admin, progress=Teller())


def to_config(
    place: Place,
    config: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
    evaluator: Evaluator | None = None,
) -> dict[str, Any]:
    """What the side job records of its place and plan. ``config``: what the trainer recorded.

    ``evaluator``: one that was checked, which knows by then what a fleet is made of.
    """
    options = place.options
    found: dict[str, Any] = {"place": place.kind}
    if place.kind == "function":
        found["function"] = options["function"]
    elif place.kind == "command":
        found["command"] = options["line"]
    elif place.kind == "engines":
        found.update(router=options["router"], engines=list(options["engines"]))
        found.update(unmarked=options["eval_unmarked"] or None)
    else:
        from fsrun.adapters.fleet.evaluator import FleetEvaluator

        settings = fleet_settings(options, config, environment)
        found["versions"] = evaluator.versions or None if isinstance(evaluator, FleetEvaluator) else None
        found.update(
            num_gpus=settings.num_gpus,
            gpus_per_engine=settings.gpus_per_engine,
            engines=list(settings.urls),
            sglang_args=list(settings.sglang_args),
            sglang_python=settings.sglang_python,
            router_command=settings.router_command,
        )
    if place.planned is not None:
        from fsrun.adapters import planning

        found.update(planning.to_config(place.planned))
    found["time_limit"] = options["time_limit"]
    return {name: value for name, value in found.items() if value not in (None, [])}


def lines(place: Place, config: Mapping[str, Any]) -> list[str]:
    """The plan in a few lines: where, and each set. None for a function or a command, whose line says all."""
    if place.planned is None:
        return []
    from fsrun.adapters import planning

    rows = [("set", "rows", "samples", "grader", "sampling", "sha256", "size", "file")]
    for plan, looked in zip(place.planned.plan.sets, place.planned.looked, strict=True):
        numbers = (str(looked.rows), str(plan.samples))
        how = (plan.grader or "", planning.sampling(plan))
        rows.append((plan.name, *numbers, *how, (plan.sha256 or "")[:12], _bytes(looked.size), plan.path))
    widths = [max(len(clean(row[at])) for row in rows) for at in range(len(rows[0]) - 1)]
    shown = [
        "  ".join([*(clean(cell).ljust(width) for cell, width in zip(row, widths, strict=False)), clean(row[-1])])
        for row in rows
    ]
    where = [f"evaluation on {_where(place, config)}, {place.planned.plan.concurrency} requests at a time"]
    if place.kind == "fleet" and (arguments := fleet_settings(place.options, config).sglang_args):
        where.append(f"engine settings: {clean(' '.join(redact_argv(arguments)))}")
    return [*where, *shown]


def _bytes(size: float) -> str:
    """A size as people read it."""
    if size < 1024:
        return f"{size:g} B"
    for unit in ("KiB", "MiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} GiB"


def _where(place: Place, config: Mapping[str, Any]) -> str:
    from fsrun.adapters.http import shown

    options = place.options
    if place.kind == "engines":
        urls = [options["router"]] if options["router"] else list(options["engines"])
        return f"the training engines at {', '.join(clean(shown(url)) for url in urls)}"
    settings = fleet_settings(options, config)
    if settings.urls:
        return f"a fleet of the engines {', '.join(clean(shown(url)) for url in settings.urls)}"
    engines = f"{settings.size} engine{'s' if settings.size > 1 else ''}"
    gpus = f"{settings.gpus_per_engine} GPU{'s' if settings.gpus_per_engine > 1 else ''}"
    return f"a fleet of {engines} of {gpus} each"


COMPARED = (
    "sha256", "rows", "grader", "grader_sha256", "input_key", "label_key", "samples", "temperature", "top_p", "top_k",
    "max_response_len", "stop", "system", "chat_template", "limit",
)  # fmt: skip
"""What must be the same for two points to belong on one curve."""


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Where the sets of a plan differ from those of an earlier one, both as recorded: a line a set."""
    found = []
    earlier = {one.get("name"): one for one in _sets(before)}
    for one in _sets(now):
        old = earlier.get(one.get("name"))
        if old is None:
            continue
        differing = [name for name in COMPARED if old.get(name) != one.get(name)]
        if differing:
            verb = "differs" if len(differing) == 1 else "differ"
            found.append(
                f"eval set {clean(one.get('name'))}: {', '.join(differing)} {verb} from the session before; its "
                "earlier points were measured otherwise"
            )
    return found


def _sets(recorded: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    sets = recorded.get("sets")
    return [one for one in sets if isinstance(one, Mapping)] if isinstance(sets, list) else []
