"""``fsrun logs RUN``: the console of a job as it was recorded, made safe to print."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import click

from fsrun.cli.options import root_option, run_argument
from fsrun.cli.plain import PlainText
from fsrun.core import layout
from fsrun.core.errors import NotFoundError
from fsrun.core.ids import MAIN
from fsrun.disk.fs import FileSystem

POLL = 0.5
"""Seconds between two looks at a console that is followed."""


@click.command(short_help="Print the console of a job.")
@run_argument
@root_option
@click.option("--job", default=MAIN, show_default=True, help="Whose console.")
@click.option("--session", type=click.IntRange(1), help="Of this session.  [default: the newest recorded one]")
@click.option("-f", "--follow", is_flag=True, help="Go on as it grows, into later sessions, until it finishes.")
def command(run: str, root: str | None, job: str, session: int | None, follow: bool) -> None:
    """Print the console of a job. Escape sequences are taken out; of progress bars what stood last is kept."""
    from fsrun.disk.fs import LocalFileSystem
    from fsrun.run.reader import resolve_run

    fs, path = LocalFileSystem(), resolve_run(run, root)
    recorded = console_sessions(fs, path, job)
    number = session if session is not None else max(recorded, default=0)
    if number not in recorded:
        which = f"session {session} of job {job}" if session else f"job {job}"
        known = f"recorded are: {', '.join(map(str, recorded))}" if recorded else "the run does not record it"
        raise NotFoundError(f"{path}/{layout.FILES}: no console of {which} ({known})")
    for piece in read_console(fs, path, job, number, follow=follow):
        click.echo(piece, nl=False)


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
            data = fs.read(log, read)
            read += len(data)
            yield text.feed(data)
            # What decided that nothing more comes was read before the bytes, so that none is missed.
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
