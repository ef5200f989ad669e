"""Is this a valid run? Every record, name, log line, place and invariant that files alone can show (protocol.md 3-9).

Reads only; each finding carries its repair where there is one without loss (``repair``). A live run is checked as it
stands: what is half done by a session that may be alive is no finding.
"""

from __future__ import annotations

from collections.abc import Iterator

from fsrun.core import layout
from fsrun.core.errors import FsrunError, NotFoundError
from fsrun.core.ids import MAIN
from fsrun.disk.fs import FileSystem, LocalFileSystem
from fsrun.run.check.finding import Finding, Fix
from fsrun.run.check.leftovers import check_leftovers
from fsrun.run.check.logs import check_logs
from fsrun.run.check.queue import check_queue
from fsrun.run.check.sessions import check_sessions

__all__ = ["Finding", "Fix", "apply_fixes", "check_run"]

_ORDER = {"error": 0, "warning": 1, "note": 2}


def check_run(path: str, fs: FileSystem | None = None) -> list[Finding]:
    """Return what is not as protocol.md says in the run folder ``path``, errors first.

    Raises ``NotFoundError`` where no run stands there.
    """
    from fsrun.run.check.finding import take_picture

    picture = take_picture(fs or LocalFileSystem(), path)
    if MAIN not in picture.chains or not picture.chains[MAIN].locks:
        raise NotFoundError(f"{path}: no run stands here ({layout.JOBS}/{layout.lock_name(MAIN, 1)} is missing)")
    check_sessions(picture)
    unit = check_queue(picture)
    check_logs(picture)
    check_leftovers(picture, unit)
    return sorted(picture.findings, key=lambda found: _ORDER[found.severity])


def apply_fixes(findings: list[Finding]) -> Iterator[tuple[Finding, str | None]]:
    """Make the repairs in their order; yields each finding with what went wrong, or None.

    After a crash: those yielded are made; checking again finds the rest.
    """
    for finding in sorted((f for f in findings if f.fix), key=lambda f: f.fix.stage if f.fix else 0):
        assert finding.fix is not None
        try:
            finding.fix.apply()
        except (OSError, FsrunError) as error:
            yield finding, str(error)
        else:
            yield finding, None
