"""``fsrun doctor DIR``: is this mount fit for runs."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from fsrun.cli.busy import busy
from fsrun.cli.options import DURATION, json_option
from fsrun.cli.text import clean, say, to_json

if TYPE_CHECKING:
    from fsrun.core.fitness import Finding

_WORDS = {"fit": "fit", "limit": "limit", "unfit": "UNFIT"}
_VERDICTS = {"fit": "fit for runs", "limit": "fit for runs, with limits", "unfit": "not fit for runs"}


@click.command(short_help="Is a folder (a mount) fit for runs: tries everything there.")
@click.argument("folder", metavar="DIR")
@click.option("--also", metavar="DIR2", help="The same folder through another mount: how late changes are seen here.")
@click.option("--seconds", type=DURATION, default="5s", show_default=True,
              help="How long to wait for a change, and to compete for a job.")  # fmt: skip
@json_option
def command(folder: str, also: str | None, seconds: float, as_json: bool) -> int:
    """Try in DIR what runs do, alone and against other processes, and say whether it is fit for them.

    Makes one hidden folder in DIR and removes it. Takes about 10 s; a minute where changes are seen late. Exit code 0:
    fit, perhaps with limits, each with its remedy; 5: not fit.
    """
    from fsrun.core.fitness import judge, verdict
    from fsrun.run.doctor import Doctor

    with busy(f"trying what runs do in {folder}"):
        facts = Doctor(os.path.expanduser(folder), also and os.path.expanduser(also), seconds=seconds).examine()
    findings = judge(facts)
    worst = verdict(findings)
    if as_json:
        shown = [asdict(finding) for finding in findings]
        say(to_json({"path": facts.path, "also": also, "verdict": worst, "findings": shown}))
    else:
        say(_table(findings))
        say(f"\n{clean(facts.path)}: {_VERDICTS[worst]}")
    return 5 if worst == "unfit" else 0


def _table(findings: list[Finding]) -> str:
    width = max(len(finding.what) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{_WORDS[finding.severity]:<5}  {clean(finding.what):<{width}}  {clean(finding.found)}")
        if finding.remedy:
            lines.append(f"{'':<5}  {'':<{width}}  -> {clean(finding.remedy)}")
    return "\n".join(lines)
