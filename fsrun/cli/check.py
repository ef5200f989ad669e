"""``fsrun check PATH``: is this a valid run; repairs what can be repaired without loss."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from fsrun.cli.busy import busy
from fsrun.cli.options import find_run, json_option, root_option
from fsrun.cli.text import clean, say, to_json

if TYPE_CHECKING:
    from fsrun.run.check import Finding

_ROUNDS = 4
"""Repairs make others possible (a closed session frees its claims), so --fix checks again this often."""


@click.command(short_help="Is this a valid run; repair it without loss.")
@click.argument("run", metavar="PATH")
@root_option
@json_option
@click.option("--fix", is_flag=True, help="Say what would be repaired; on a terminal, ask and do it.")
@click.option("--yes", is_flag=True, help="With --fix: repair without asking, also where there is no terminal.")
def command(run: str, root: str | None, as_json: bool, fix: bool, yes: bool) -> int:
    """Check a run against protocol.md: every record, name, log line, place and invariant that files can show.

    An error makes the run not valid (exit code 5); a warning can be repaired; a note explains. --fix imports points
    that were kept in a local file, closes sessions whose process is proved dead, finishes the moves of their claims,
    removes what they left, writes views and data.parquet anew. It touches no session that may be alive.
    """
    from fsrun.core.errors import UsageError
    from fsrun.run.check import check_run

    if yes and not fix:
        raise UsageError("--yes answers what --fix asks: give both, --fix --yes")
    path = find_run(run, root)
    with busy(f"checking {path}"):
        findings = check_run(path)
    repairs: list[dict[str, Any]] = []
    if fix and any(finding.fix for finding in findings):
        if not as_json:
            _say_plan(findings)
        if yes or (not as_json and sys.stdin.isatty() and sys.stdout.isatty() and click.confirm("Repair?")):
            findings, repairs = _repair(path, findings, quiet=as_json)
        elif not as_json:
            say(f"nothing was changed; to repair it: fsrun check {clean(shlex.quote(path))} --fix --yes\n")
    valid = not any(finding.severity == "error" for finding in findings)
    if as_json:
        shown = [finding.to_json() for finding in findings]
        say(to_json({"path": path, "valid": valid, "findings": shown, "repairs": repairs}))
    else:
        _say_findings(path, findings, valid)
    if not valid:
        return 5
    return 1 if any(repair["error"] for repair in repairs) else 0


def _say_plan(findings: list[Finding]) -> None:
    say("would be repaired:")
    for finding in findings:
        if finding.fix:
            say(f"  {clean(finding.file)}: {finding.fix.does}")


def _repair(path: str, findings: list[Finding], *, quiet: bool) -> tuple[list[Finding], list[dict[str, Any]]]:
    """Repair, check again, repair what that made possible; returns what is left, and what was done."""
    from fsrun.run.check import apply_fixes, check_run

    repairs: list[dict[str, Any]] = []
    tried: set[tuple[str, str]] = set()
    for _ in range(_ROUNDS):
        open_ones = [f for f in findings if f.fix and (f.file, f.fix.does) not in tried]
        if not open_ones:
            break
        for finding, error in apply_fixes(open_ones):
            does = finding.fix.does if finding.fix else ""
            tried.add((finding.file, does))
            repairs.append({"file": finding.file, "does": does, "error": error})
            if not quiet:
                say(f"{clean(finding.file)}: {does}: {clean(error) if error else 'done'}")
        findings = check_run(path)
    return findings, repairs


def _say_findings(path: str, findings: list[Finding], valid: bool) -> None:
    for finding in findings:
        where = finding.file if finding.line is None else f"{finding.file}:{finding.line}"
        head = f"{finding.severity}: {clean(where)}: {clean(finding.message)}"
        say(f"{head} (protocol.md {finding.rule}; remedy: {clean(finding.remedy)})")
    counts = {kind: sum(f.severity == kind for f in findings) for kind in ("error", "warning", "note")}
    summary = ", ".join(f"{count} {kind}{'s' if count != 1 else ''}" for kind, count in counts.items() if count)
    say(f"{clean(path)}: {'valid' if valid else 'not valid'}{f' ({summary})' if summary else ''}")
