"""``fsrun logs RUN``: the console of a job as it was recorded, made safe to print."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import click

from fsrun.cli.options import find_run, root_option, run_argument
from fsrun.cli.plain import PlainText
from fsrun.cli.text import clean
from fsrun.core import layout
from fsrun.core.errors import NotFoundError, UsageError
from fsrun.core.ids import MAIN, is_job
from fsrun.disk.fs import FileSystem

_PIECE = 1 << 20
POLL = 0.5
"""Seconds between two looks at a console that is followed."""


@click.command(short_help="Print the console of a job.")
@run_argument
@root_option
@click.option("--job", default=MAIN, show_default=True, help="Whose console.")
@click.option("--session", type=click.IntRange(1), help="Of this session.  [default: the newest recorded one]")
@click.option("-f", "--follow", is_flag=True, help="Go on as it grows, into later sessions, until it finishes.")
def command(run: str, root: str | None, job: str, session: int | None, follow: bool) -> None:
    """Print the console of a job. Escape sequences are taken out; of progress bars what stood last is kept.

    -f also waits for a job that has not started, or has printed nothing yet.
    """
    from fsrun.disk.fs import LocalFileSystem

    fs, path = LocalFileSystem(), find_run(run, root)
    number = _find(fs, path, job, session, follow=follow)
    for piece in read_console(fs, path, job, number, follow=follow):
        click.echo(piece, nl=False)


def _find(fs: FileSystem, path: str, job: str, session: int | None, *, follow: bool) -> int:
    """The session whose console is asked for; following, waits until it is there or cannot come any more."""
    if not is_job(job):
        raise UsageError(f"--job {job}: that is no name of a job")
    told = False
    while True:
        # The chain before the consoles: what is closed by then will record no more.
        why, may_come = _missing(fs, path, job, session)
        recorded = console_sessions(fs, path, job)
        number = session if session is not None else max(recorded, default=0)
        if number in recorded:
            return number
        if not (follow and may_come):
            known = f"; recorded are: {', '.join(map(str, recorded))}" if recorded else ""
            raise NotFoundError(f"{path}/{layout.FILES}: no console of job {job}: {why}{known}")
        if not told:
            click.echo(f"fsrun: waiting: {clean(why)}", err=True)
            told = True
        time.sleep(POLL)


def _missing(fs: FileSystem, path: str, job: str, session: int | None) -> tuple[str, bool]:
    """Why a console may be missing, and whether it may still come."""
    from fsrun.run.listing import read_chains

    chains = read_chains(fs.names(os.path.join(path, layout.JOBS)))
    highest, closed = chains.get(job, (0, True))
    if not highest:
        return f"the job has not started; there are: {', '.join(sorted(chains))}", True
    if session is not None and session > highest:
        return f"session {session} has not started", True
    number = highest if session is None else session
    if number == highest and not closed:
        why = f"session {number} has printed nothing yet, or does not record it"
        return f"{why} (init(console=False), FSRUN_CONSOLE=0)", True
    ended = session is not None or _has_finished(fs, path, job)
    return f"session {number} has ended and did not record it", not ended


def console_sessions(fs: FileSystem, path: str, job: str) -> list[int]:
    """Return the sessions of a job whose console was recorded, in order."""
    try:
        names = fs.names(f"{path}/{layout.FILES}")
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(session for name in names if (session := layout.parse_console_name(name, job)))


def read_console(fs: FileSystem, path: str, job: str, session: int, *, follow: bool) -> Iterator[str]:
    """Yield the console of a session as safe text; following, also what comes, and the sessions after it."""
    while True:
        text, read = PlainText(), 0
        log = f"{path}/{layout.FILES}/{layout.console_name(job, session)}"
        while True:
            later = [n for n in console_sessions(fs, path, job) if n > session] if follow else []
            over = not follow or bool(later) or _has_finished(fs, path, job)
            data = fs.read(log, read, _PIECE)
            read += len(data)
            yield text.feed(data)
            # What decided that nothing more comes was read before the bytes, so that none is missed.
            if len(data) == _PIECE:
                continue
            if over:
                break
            if not data:
                time.sleep(POLL)
        yield text.end()
        if not later:
            return
        session = later[0]


def _has_finished(fs: FileSystem, path: str, job: str) -> bool:
    """Whether the job ended as finished. After any other end the next session may come, and is waited for."""
    from fsrun.run.listing import read_chains, read_end

    chain = read_chains(fs.names(os.path.join(path, layout.JOBS))).get(job)
    return chain is not None and chain[1] and read_end(fs, path, job, chain[0])[0]["status"] == "finished"
