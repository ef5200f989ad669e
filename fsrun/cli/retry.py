"""``fsrun retry RUN [ENTRY...]``: evaluate checkpoints again that were given up."""

from __future__ import annotations

import click

from fsrun.cli.options import find_run, root_option, run_argument
from fsrun.cli.text import clean, say
from fsrun.core.errors import FsrunError, NotFoundError


@click.command(short_help="Put checkpoints that were given up back into the queue.")
@run_argument
@click.argument("entries", nargs=-1, metavar="[ENTRY]...")
@root_option
def command(run: str, entries: tuple[str, ...], root: str | None) -> int:
    """Put what stands in failed/ back into the queue, all of it or these entries, for an evaluator to take.

    An entry X comes back as X~2 with three attempts of its own; the outcomes of X stay. After a crash: each entry
    stands in failed/ or in queue/.
    """
    from fsrun.disk.clock import SystemClock
    from fsrun.disk.fs import LocalFileSystem
    from fsrun.disk.store import Store
    from fsrun.run.again import given_up, hand_over_again
    from fsrun.run.outside import OutsideQueue

    fs, path = LocalFileSystem(), find_run(run, root)
    queue = OutsideQueue(fs, path, lambda text: None)
    there = given_up(queue.unit)
    if missing := [entry for entry in entries if entry not in there]:
        known = f"there are: {', '.join(there)}" if there else "it is empty"
        raise NotFoundError(f"{queue.unit.path('failed')}: {missing[0]} is not there ({known})")
    if not there:
        click.echo(f"fsrun: {clean(queue.unit.path('failed'))} is empty: nothing was given up", err=True)
    for entry in dict.fromkeys(entries) if entries else there:
        try:
            name = hand_over_again(queue.unit, Store(fs, path, "enqueue", 0), SystemClock(), entry)
        except ValueError as error:
            raise FsrunError(f"{queue.unit.path('failed', entry)}: {error}") from error
        if name is not None:
            say(f"{clean(entry)} waits again as {clean(name)}")
    if there and queue.main_state().status == "finished":
        click.echo("fsrun: main has finished; start fsrun eval where none runs", err=True)
    return 0
