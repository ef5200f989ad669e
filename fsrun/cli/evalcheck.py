"""``fsrun eval --check``: would this evaluation work; asked in seconds, before a long run, and without one.

Leaves to others: what is the matter with engines and routers, and what helps (``adapters.preflight``).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

import click

from fsrun.cli import evalplace
from fsrun.cli.text import clean, say
from fsrun.core.errors import UsageError

Findings = list[tuple[str, str]]
"""Level (``ok``, ``note``, ``fault``) and what was found."""


def check(place: evalplace.Place, environment: Mapping[str, str]) -> int:
    """Try a place and say what was found, a line each; the exit code: 0 where an evaluation would work, else 1."""
    for line in evalplace.lines(place, {}):
        say(line)
    if place.kind in ("function", "command"):
        return _end(_own(place, environment))
    found = _fleet(place, environment) if place.kind == "fleet" else []
    if place.kind == "engines" or place.options["eval_engines"]:
        found += _engines(place, environment)
    if place.planned is None:
        found.append(("note", "no eval data is given: sets, tokenizer and graders were not tried"))
    return _end(found)


def _own(place: evalplace.Place, environment: Mapping[str, str]) -> Findings:
    evaluator = evalplace.make(place, {}, environment)
    try:
        evaluator.check()
    finally:
        evaluator.close()
    is_function = place.kind == "function"
    return [("ok", "the function can be loaded" if is_function else "the command names what it is given")]


def _engines(place: evalplace.Place, environment: Mapping[str, str]) -> Findings:
    from fsrun.adapters import preflight
    from fsrun.adapters.causes import Finding
    from fsrun.adapters.evaluation import EvaluationError
    from fsrun.adapters.generation import HttpTarget
    from fsrun.adapters.http import base_url

    options = place.options
    plan = None if place.planned is None else place.planned.plan
    urls = [base_url(url) for url in ([options["router"]] if options["router"] else options["engines"])]
    urls = urls or [base_url(url) for url in options["eval_engines"]]

    async def look() -> list[Finding]:
        key, admin = (environment.get(name) or None for name in (evalplace.API_KEY, evalplace.ADMIN_KEY))
        router = options["router"] is not None
        async with HttpTarget(urls, router=router, api_key=key, admin_key=admin) as target:
            return await preflight.check(target, plan, environment)

    try:
        found = asyncio.run(look())
    except EvaluationError as error:
        return [("fault", error.reason)]
    return [(finding.level, finding.text) for finding in found]


def _fleet(place: evalplace.Place, environment: Mapping[str, str]) -> Findings:
    """What can be known of a fleet without starting it."""
    from fsrun.adapters.fleet.settings import gpu_groups, python_of

    settings = evalplace.fleet_settings(place.options, {}, environment)
    found: Findings = []
    evaluator = evalplace.make(place, {}, environment)
    try:
        evaluator.check()
        held = settings.router_command if settings.urls else f"SGLang and {settings.router_command}"
        found.append(("ok", f"{python_of(settings)} has {held}"))
        if not settings.urls:
            found += _gpus(gpu_groups(settings, environment.get("CUDA_VISIBLE_DEVICES")), settings.num_gpus)
    except UsageError as error:
        found.append(("fault", str(error)))
    finally:
        evaluator.close()
    if place.options["eval_hf_dir"] is not None:
        found.append(_folder(place.options["eval_hf_dir"]))
    return found


def _gpus(groups: list[str], wanted: int) -> Findings:
    found = [("ok", f"CUDA_VISIBLE_DEVICES of the engines: {'; '.join(groups)}")]
    here = sum(name.removeprefix("nvidia").isdigit() for name in os.listdir("/dev"))
    if here < wanted:
        found.append(("note", f"this host shows {here} NVIDIA GPUs, {wanted} are asked for"))
    return found


def _folder(folder: str) -> tuple[str, str]:
    """Whether snapshots can stand in a folder."""
    there = os.path.abspath(folder)
    while not os.path.exists(there):
        there = os.path.dirname(there)
    try:
        space = os.statvfs(there)
    except OSError as error:
        return "fault", f"--eval-hf-dir {folder}: {error.strerror or error}"
    if not os.path.isdir(there) or not os.access(there, os.R_OK | os.X_OK):
        return "fault", f"--eval-hf-dir {folder}: {there} is no folder that this user can read"
    made = "" if os.path.exists(folder) else ", to be made by the trainer"
    return "ok", f"{folder}: {space.f_bavail * space.f_frsize / 2**30:.1f} GiB free for snapshots{made}"


def _end(found: Findings) -> int:
    for level, text in found:
        click.echo(f"{level:5}  {clean(text)}")
    faults = sum(level == "fault" for level, _ in found)
    many = f"{faults} fault{'s' * (faults > 1)}"
    say(f"this evaluation would not work: {many}" if faults else "this evaluation would work")
    return 1 if faults else 0
