"""What evaluation cost, for people: the lines of ``show`` about the plan, its engines, the pause and what failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fsrun.cli.text import clean, number
from fsrun.core.pause import LARGE_SHARE

_MOST = 5
"""Sets, engine facts and reasons that are named."""
_TEXT = 120


def evaluation_lines(evaluation: Mapping[str, Any] | None, jobs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The lines about evaluation: what is evaluated where, how long it takes, what it costs, what failed."""
    for job in jobs:
        plan = job["config"].get("eval") if job["job"] != "main" else None
        if isinstance(plan, Mapping) and (text := plan_line(plan)):
            yield f"plan of {clean(job['job'])}: {text}"
    if evaluation is None:
        return
    if engine := engine_line(evaluation["engine"]):
        yield f"engine: {engine}"
    if took := _took(evaluation):
        yield f"evaluations: {took}"
    if evaluation["pause_s"]:
        yield pause_line(evaluation)
    reasons = list(evaluation["failed"].items())
    if reasons:
        told = "; ".join(f"{clean(reason)[:_TEXT]} ({count})" for reason, count in reasons)
        yield f"failed attempts: {told}"


def plan_line(plan: Mapping[str, Any]) -> str:
    """Place and sets of a recorded plan, with rows, answers a prompt and grader; what is of another form is absent."""
    listed = plan.get("sets")
    sets = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
    told = [_set(one) for one in sets[:_MOST]] + [f"{len(sets) - _MOST} more"] * (len(sets) > _MOST)
    return "; ".join(text for text in (_place(plan), ", ".join(told)) if text)


def _place(plan: Mapping[str, Any]) -> str:
    """Where it runs, such as ``fleet of 2 GPUs`` or ``engines http://r:30000``."""
    kind = plan.get("place")
    if not isinstance(kind, str):
        return ""
    text = clean(kind)
    if isinstance(plan.get("num_gpus"), int) and plan["num_gpus"]:
        text += f" of {plan['num_gpus']} GPUs"
    urls = plan.get("engines")
    named = [plan.get(name) for name in ("function", "command", "router")]
    named += urls if isinstance(urls, list) else []
    shown = " ".join(clean(name) for name in named[: 3 + _MOST] if isinstance(name, str))
    return f"{text} {shown}".strip()[:_TEXT]


def _set(one: Mapping[str, Any]) -> str:
    size = [f"{one['rows']} rows"] if isinstance(one.get("rows"), int) else []
    if isinstance(one.get("samples"), int) and one["samples"] != 1:
        size.append(f"{one['samples']} answers each")
    size += [clean(one["grader"])] if isinstance(one.get("grader"), str) else []
    return clean(one.get("name")) + (f" ({', '.join(size)})" if size else "")


def engine_line(engine: Mapping[str, Any] | None) -> str:
    """What answered last, in short: what is one word or number, and how many engines there were."""
    facts = engine or {}
    told = [f"{clean(k)} {number(v)}" for k, v in facts.items() if isinstance(v, str | int | float) and v != ""]
    many = facts.get("engines")
    if isinstance(many, Sequence) and not isinstance(many, str) and len(many) > 1:
        told.insert(0, f"{len(many)} engines")
    return ", ".join(text[:_TEXT] for text in told[: _MOST + 1])


def _took(evaluation: Mapping[str, Any]) -> str:
    """How long an evaluation takes, how late it is, and what is kept of it."""
    told = []
    if (spread := evaluation["duration_s"]) is not None:
        told.append(f"{seconds(spread['median'])} each (at most {seconds(spread['max'])})")
    if (lag := evaluation["lag_steps"]) is not None:
        told.append(f"{number(lag['median'])} steps late (at most {number(lag['max'])})")
    if (kept := evaluation["samples"])["evaluations"]:
        told.append(f"samples of {kept['evaluations']} kept ({kept['rows']} rows)")
    return ", ".join(told)


def pause_line(evaluation: Mapping[str, Any]) -> str:
    """What the pause costs and whether a fleet would pay, with the numbers that say so."""
    cost, spread = evaluation["pause"], evaluation["pause_s"]
    if cost is None:
        return f"pause: {seconds(spread['last'])} the last time; too few pauses or logged steps to tell their share"
    numbers = (
        f"pause: {cost['share']:.0%} of the time of training: {seconds(cost['pause_s'])} every "
        f"{number(cost['interval'])} steps of {seconds(cost['step_s'])}"
    )
    if not cost["fleet_pays"]:
        return f"{numbers}; below {LARGE_SHARE:.0%}, so evaluating on the training engines is cheapest"
    if cost["gpus"] is None:
        return f"{numbers}; a fleet pays if whole GPUs can be spared, fewer than {cost['share']:.0%} of them"
    if not cost["spare"]:
        beside = f"a fleet pays with GPUs beside the {cost['gpus']} of main"
        return f"{numbers}; {beside}: one of those is worth more than the pause"
    return f"{numbers}; a fleet of up to {cost['spare']} of the {cost['gpus']} GPUs would pay"


def seconds(value: float) -> str:
    """A duration in seconds, with two digits where it is short."""
    digits = 2 if value < 1 else 1 if value < 10 else 0
    return f"{round(value, digits):g} s"
