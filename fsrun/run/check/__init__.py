"""Is this a valid run? Every record, name, log line, place and invariant that files alone can show (protocol.md 3-9).

Reads only; each finding carries its repair where there is one without loss (``repair``). A live run is checked as it
stands: what is half done by a session that may be alive is no finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fsrun.core import layout
from fsrun.core.errors import InvalidError, NotFoundError
from fsrun.core.ids import MAIN
from fsrun.disk.fs import FileSystem, LocalFileSystem
from fsrun.run.check.finding import VERSIONS, Finding, Fix, Picture, take_picture
from fsrun.run.check.leftovers import check_leftovers
from fsrun.run.check.logs import check_logs
from fsrun.run.check.queue import check_queue
from fsrun.run.check.sessions import check_sessions
from fsrun.run.check.started import check_started

__all__ = ["Finding", "Fix", "apply_fixes", "check_run"]

_ORDER = {"error": 0, "warning": 1, "note": 2}


def check_run(path: str, fs: FileSystem | None = None) -> list[Finding]:
    """Return what is not as protocol.md says in the run folder ``path``, errors first.

    Where this version must not write to the run, no finding has a repair. Raises ``NotFoundError`` where no run stands
    there.
    """
    fs = fs or LocalFileSystem()
    picture = _look(fs, path)
    found = picture.findings
    if found and not picture.all_closed():
        # A live run moves between two listings: what a second look does not find again was such a move.
        again = {(f.file, f.line, f.rule) for f in _look(fs, path).findings}
        found = [f for f in found if (f.file, f.line, f.rule) in again]
    if any(finding.rule == VERSIONS for finding in found):
        found = [replace(finding, fix=None) for finding in found]
    return sorted(found, key=lambda finding: _ORDER[finding.severity])


def _look(fs: FileSystem, path: str) -> Picture:
    picture = take_picture(fs, path)
    if MAIN not in picture.chains or not picture.chains[MAIN].locks:
        raise NotFoundError(f"{path}: no run stands here ({layout.JOBS}/{layout.lock_name(MAIN, 1)} is missing)")
    check_sessions(picture)
    unit, outcomes = check_queue(picture)
    check_logs(picture, outcomes)
    check_started(picture, set(picture.store.names("")))
    check_leftovers(picture, unit)
    return picture


def apply_fixes(findings: list[Finding]) -> Iterator[tuple[Finding, str | None]]:
    """Make the repairs in their order; yields each finding with what went wrong, or None.

    Raises ``InvalidError`` where this version must not write to the run.
    After a crash: those yielded are made; checking again finds the rest.
    """
    for finding in findings:
        if finding.rule == VERSIONS:
            raise InvalidError(f"{finding.file}: {finding.message}")
    for finding in sorted((f for f in findings if f.fix), key=lambda f: f.fix.stage if f.fix else 0):
        assert finding.fix is not None
        try:
            finding.fix.apply()
        except Exception as error:  # noqa: BLE001 - one that fails must not keep the others from being made
            yield finding, str(error) or type(error).__name__
        else:
            yield finding, None
