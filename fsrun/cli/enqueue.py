"""``fsrun enqueue RUN PATH``: hand a checkpoint over, also for trainers that nobody can edit."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from fsrun.cli.busy import busy
from fsrun.cli.options import DURATION, root_option, run_argument
from fsrun.cli.text import clean, say
from fsrun.core.errors import FsrunError, UsageError

if TYPE_CHECKING:
    from fsrun.run.outside import OutsideQueue
    from fsrun.run.watch import FolderWatch

_TRIES = 3
"""How often --watch tries a checkpoint that could not be handed over."""


@click.command(short_help="Hand a checkpoint over, or all that appear in a folder.")
@run_argument
@click.argument("path", required=False)
@root_option
@click.option("--step", type=int, help="The training step it belongs to.  [default: the one in its name]")
@click.option("--name", help="Name of the entry.  [default: the last part of PATH]")
@click.option("--watch", "folder", metavar="DIR", help="Hand over every checkpoint that is finished in DIR, each once.")
@click.option("--glob", "pattern", metavar="PATTERN", default="*", show_default=True, help="With --watch: these names.")
@click.option("--poll", type=DURATION, default="2s", show_default=True, help="With --watch: time between two looks.")
@click.option("--linger", type=DURATION, default="10m", show_default=True,
              help="With --watch: how long to wait for a main job that failed or crashed to come back.")  # fmt: skip
@click.option("--finish", is_flag=True, help="At the end, say that no more will come (FINISHED).")
def command(
    run: str, path: str | None, root: str | None, step: int | None, name: str | None,
    folder: str | None, pattern: str, poll: float, linger: float, finish: bool,
) -> int:  # fmt: skip
    """Hand over the file or folder PATH to the evaluators of RUN, or all that appear in a folder.

    --watch takes a name when it is no staging name (tmp-..., ....tmp, orbax-checkpoint-tmp) and stood still over two
    looks. It ends when the main job has finished, or FINISHED stands, and nothing is left to take.
    """
    _check(path, step, name, folder, pattern, finish)
    from fsrun.disk.fs import LocalFileSystem
    from fsrun.run.outside import OutsideQueue
    from fsrun.run.reader import resolve_run

    complaints: list[str] = []
    queue = OutsideQueue(LocalFileSystem(), resolve_run(run, root), complaints.append)
    failed = False
    if path is not None:
        failed = not _hand_over(queue, path, step, name, complaints)
    elif folder is not None:
        failed = not _watch(queue, folder, pattern, poll, linger, complaints)
    # A watch that is over has handed over all it could; of a single PATH the next try may do better.
    if finish and not (failed and path is not None):
        if not queue.finish():
            raise FsrunError("; ".join(complaints) or f"{queue.unit.root}: FINISHED could not be written")
        say("FINISHED")
    return 1 if failed else 0


def _check(
    path: str | None, step: int | None, name: str | None, folder: str | None, pattern: str, finish: bool
) -> None:
    if path is not None and folder is not None:
        raise UsageError("give PATH or --watch DIR, not both")
    if path is None and folder is None and not finish:
        raise UsageError("give PATH, or --watch DIR, or --finish")
    if path is None and (step is not None or name is not None):
        raise UsageError("--step and --name go with PATH")
    if "/" in pattern:
        raise UsageError(f"--glob {pattern}: names in DIR only, without /")


def _hand_over(queue: OutsideQueue, path: str, step: int | None, name: str | None, complaints: list[str]) -> bool:
    """Hand one over and say its name; False, with the reason on stderr, where that failed."""
    with busy(f"handing over {path}"):
        entry = queue.enqueue(path, step=step, name=name)
    for complaint in complaints:
        click.echo(f"fsrun: {clean(complaint)}", err=True)
    complaints.clear()
    if entry is None:
        return False
    say(clean(entry))
    return True


def _watch(queue: OutsideQueue, folder: str, pattern: str, poll: float, linger: float, complaints: list[str]) -> bool:
    """Hand over what appears until the run is over; False where something could not be handed over."""
    from fsrun.run.watch import FolderWatch

    watch = FolderWatch(queue.fs, os.path.abspath(folder), pattern, queue.unit)
    if not os.path.isdir(folder):
        click.echo(f"fsrun: {clean(watch.folder)} is not there yet; waiting for it", err=True)
    tries: Counter[str] = Counter()
    for path in _ready(watch, queue, poll, linger):
        tries[path] += 1
        if _hand_over(queue, path, None, None, complaints):
            tries[path] = 0
        if tries[path] in (0, _TRIES):
            watch.took(path)
    return not any(count >= _TRIES for count in tries.values())


def _ready(watch: FolderWatch, queue: OutsideQueue, poll: float, linger: float) -> Iterator[str]:
    """Yield what is ready. Whether the run is over is asked before each look, so that nothing finished is left."""
    ended: float | None = None
    looked_after_end = 0
    while True:
        state = queue.main_state()
        ended = None if state.status == "running" else time.monotonic() if ended is None else ended
        over = queue.is_finished() or state.status == "finished"
        over = over or (ended is not None and time.monotonic() - ended >= linger)
        looked_after_end = looked_after_end + 1 if over else 0
        yield from watch.look()
        if looked_after_end >= 2 and not watch.settling:
            return
        time.sleep(poll)
