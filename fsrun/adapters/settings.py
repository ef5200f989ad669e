"""The settings of an eval set: their names, what each may be, and which level counts.

Levels, the first that says something counts: the set in the YAML file, its ``defaults``, the flags ``--eval-*``, what
is built in (``plan.SetPlan``). Leaves to others: the YAML file (``planfile``), flags (``flags``), data (``datasets``).
"""

from __future__ import annotations

import difflib
import math
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fsrun.adapters.plan import SetPlan
from fsrun.core.errors import UsageError
from fsrun.core.values import check_tag
from fsrun.disk.fs import require_file

RESERVED = ("lag_steps", "duration_s", "pause_s")
"""Names of ``eval/...`` points that are no set's."""


@dataclass(frozen=True, slots=True)
class SetSource:
    """A set as it was given: where, and what was said of it."""

    name: str
    path: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """By field of ``SetPlan``, checked."""
    where: str = ""
    """For messages, such as ``--eval-prompt-data`` or ``evals.yaml: set aime``."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What its file says for all sets."""


class Refused(ValueError):
    """A value that cannot be; the text says what it has to be instead."""


def _whole(least: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, str):
            try:
                value = int(value)
            except ValueError:
                pass
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise Refused(f"a whole number of {least} or more")
        return value

    return read


def _number(low: float, high: float, *, open_low: bool = False) -> Callable[[object], float]:
    def read(value: object) -> float:
        # YAML takes 1e-3 for text.
        try:
            number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not (low < number if open_low else low <= number) or not number <= high or math.isinf(number):
            range_ = f"{low:g} or more" if high == math.inf else f"{'above ' if open_low else ''}{low:g} to {high:g}"
            raise Refused(f"a number, {range_}")
        return number

    return read


def _top_k(value: object) -> int:
    number = _whole(-1)(value)
    if number == 0:
        raise Refused("-1 (all tokens), or 1 and more")
    return number


def _text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Refused("text (in quotes where YAML would read something else)")
    return str(value)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(_text(item) for item in value) if isinstance(value, list | tuple) else (_text(value),)


def _ks(value: object) -> tuple[int, ...]:
    items = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    return tuple(sorted({_whole(1)(item) for item in items}))


def _template(value: object) -> str:
    """A chat template: ``none``, the text of one, or a file that holds it."""
    text = _text(value)
    if text == "none" or "{" in text or "\n" in text:
        return text
    try:
        with open(os.path.expanduser(text), encoding="utf-8", opener=_open_file) as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise Refused(f"none, the text of a Jinja template or a file that holds one ({error})") from None


def _open_file(path: str, flags: int) -> int:
    """Open a file: no pipe, which may hold everything up."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    try:
        require_file(descriptor, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def quoted(value: object) -> str:
    """A value of a file as text for a message: short, whatever refers to itself or to much of it again and again."""
    try:
        return _QUOTES.repr(value)
    except ValueError:  # an integer of some thousand digits
        return f"a {type(value).__name__}"


_QUOTES = reprlib.Repr()
_QUOTES.maxstring = _QUOTES.maxother = 200


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a set."""

    field: str
    read: Callable[[object], Any]
    aliases: tuple[str, ...] = ()
    """Names that people know from elsewhere."""


SETTINGS: dict[str, Setting] = {
    "input_key": Setting("input_key", _text),
    "label_key": Setting("label_key", _text),
    "grader": Setting("grader", _text),
    "samples": Setting("samples", _whole(1), ("n_samples_per_eval_prompt", "n_samples")),
    "pass_k": Setting("pass_k", _ks),
    "temperature": Setting("temperature", _number(0, 100)),
    "top_p": Setting("top_p", _number(0, 1, open_low=True)),
    "top_k": Setting("top_k", _top_k),
    "max_response_len": Setting("max_tokens", _whole(1), ("max_tokens", "max_new_tokens")),
    "system": Setting("system", _text, ("system_prompt",)),
    "chat_template": Setting("chat_template", _template),
    "stop": Setting("stop", _texts),
    "limit": Setting("limit", _whole(1)),
    "max_ungraded": Setting("max_ungraded", _number(0, 1)),
}
"""Name in the YAML file, and behind ``--eval-`` -> what it is. The built-in values are those of ``SetPlan``."""

NAMES = {name: setting for key, setting in SETTINGS.items() for name in (key, *setting.aliases)}


def read_settings(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Settings by field of ``SetPlan``; what is null counts as not said. ``UsageError`` names the key."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        setting = NAMES.get(name)
        if setting is None:
            raise UsageError(f"{where}: {unknown(name, SETTINGS)}")
        if value is None:
            continue
        try:
            read = setting.read(value)
        except Refused as error:
            raise UsageError(f"{where}: {name} is {quoted(value)}; it is {error}") from None
        if found.setdefault(setting.field, read) != read:
            raise UsageError(f"{where}: {name} is said twice, under two names")
    return found


def unknown(name: object, known: Iterable[str]) -> str:
    """Say that a key is unknown, and which one is near, or which there are."""
    known = list(known)
    near = difflib.get_close_matches(str(name), known, 1)
    return f"unknown key {str(name)!r}; " + (f"is it {near[0]}?" if near else f"there are: {', '.join(known)}")


def resolve(sources: Iterable[SetSource], flags: Mapping[str, Any]) -> tuple[SetPlan, ...]:
    """The sets with everything that was said of them; ``UsageError`` where that cannot be. Data is not looked at."""
    plans: list[SetPlan] = []
    for source in sources:
        levels = (source.settings, source.defaults, flags)
        said = {**flags, **source.defaults, **source.settings}
        samples = said.get("samples", 1)
        if _level("samples", levels) < _level("pass_k", levels) and "pass_k" in said:
            # Said for sets in general, while this one has its own number of samples.
            fitting = tuple(k for k in said.pop("pass_k") if k <= samples)
            said |= {"pass_k": fitting} if fitting else {}
        if samples > 1:
            # Greedy answers are all the same: several of them need a temperature, and are there for pass@k.
            said.setdefault("temperature", 1.0)
            said.setdefault("pass_k", (samples,))
        plan = SetPlan(source.name, source.path, **said)
        if plan.pass_k and plan.pass_k[-1] > samples:
            of = f"{samples} sample{'s' if samples > 1 else ''} a prompt"
            raise UsageError(f"{source.where}: pass_k {plan.pass_k[-1]} of {of}; samples has to be as many at least")
        if plan.system is not None and plan.chat_template == "none":
            raise UsageError(f"{source.where}: a system prompt needs a chat template, and chat_template is none")
        _check_name(plan, source.where, plans)
        plans.append(plan)
    return tuple(plans)


def _level(name: str, levels: tuple[Mapping[str, Any], ...]) -> int:
    return next((at for at, level in enumerate(levels) if name in level), len(levels))


def _check_name(plan: SetPlan, where: str, others: list[SetPlan]) -> None:
    name = plan.name
    if fault := check_tag(f"eval/{name}/pass@{plan.samples}") if name else "it is empty":
        raise UsageError(f"{where}: the name {name!r} of a set cannot be part of a tag: {fault}")
    if name in RESERVED:
        raise UsageError(
            f"{where}: the name {name!r} is taken: eval/{name} is a point of its own; name the set otherwise"
        )
    for other in others:
        if other.name == name:
            raise UsageError(f"{where}: a second set of the name {name!r}; each needs one of its own")
        if f"{name}/".startswith(f"{other.name}/") or f"{other.name}/".startswith(f"{name}/"):
            raise UsageError(f"{where}: the tags of the sets {other.name!r} and {name!r} would mix; name one otherwise")
