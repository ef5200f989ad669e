"""``fsrun enqueue RUN PATH``: hand a checkpoint over, also for trainers that nobody can edit (``watching``)."""

from __future__ import annotations

import click

from fsrun.cli.options import DURATION, find_run, root_option, run_argument
from fsrun.cli.text import say
from fsrun.core.errors import FsrunError, UsageError


@click.command(short_help="Hand a checkpoint over, or all that appear in a folder.")
@run_argument
@click.argument("path", required=False)
@root_option
@click.option("--step", type=int, help="The training step it belongs to.  [default: the one in its name]")
@click.option("--name", help="Name of the entry.  [default: the last part of PATH]")
@click.option("--watch", "folder", metavar="DIR", help="Hand over every checkpoint that is finished in DIR, each once.")
@click.option("--glob", "pattern", metavar="PATTERN", default="*", show_default=True, help="With --watch: these names.")
@click.option("--ready", metavar="PATTERN", help="With --watch: a folder is a checkpoint once it holds such a file.")
@click.option("--settle", type=DURATION, default="10s", show_default=True, metavar="TIME",
              help="With --watch: how long names, sizes and times must have stood still.")  # fmt: skip
@click.option("--until-file", metavar="FILE", help="With --watch: the trainer is done when FILE is there.")
@click.option("--idle", type=DURATION, metavar="TIME", help="With --watch: it is done when DIR stands still that long.")
@click.option("--job", metavar="JOB", help="With --watch: as this job.  [default: main or watch, see above]")
@click.option("--poll", type=DURATION, default="2s", show_default=True, metavar="TIME",
              help="With --watch: time between two looks.")  # fmt: skip
@click.option("--linger", type=DURATION, default="10m", show_default=True, metavar="TIME",
              help="With --watch as a side job: how long to wait for a main job that failed or crashed.")  # fmt: skip
@click.option("--finish", is_flag=True, help="At the end, say that no more will come (FINISHED).")
def command(
    run: str, path: str | None, root: str | None, step: int | None, name: str | None, folder: str | None,
    pattern: str, ready: str | None, settle: float, until_file: str | None, idle: float | None, job: str | None,
    poll: float, linger: float, finish: bool,
) -> int:  # fmt: skip
    """Hand over the file or folder PATH to the evaluators of RUN, or all that appear in a folder.

    --watch takes a name when it is no staging name (tmp-..., ....tmp, orbax-checkpoint-tmp) and stood still for the
    settle time. Where RUN (written PROJECT/RUN, or as a path) is not there yet it is made, and this command is its main
    job, for a trainer that knows nothing of fsrun; a later one goes on with it. It then ends at --until-file or --idle.
    With --finish also at SIGTERM or Ctrl-C, which then say that the trainer is done: what is left is handed over first.

    Where the trainer itself opens the run, this command joins as job "watch", and ends when main has finished or
    FINISHED stands, and nothing is left to take. Where it may start before such a trainer, say --job watch: it must not
    take the trainer's place. Evaluators wait for its end either way.
    """
    _check(path, step, name, folder, pattern, finish, watching=bool(ready or until_file or idle is not None or job))
    if folder is not None:
        from fsrun.cli.watching import Plan, watch

        return watch(run, root, Plan(folder, pattern, settle, ready, poll, linger, job, finish, until_file, idle))
    from fsrun.cli.watching import hand_over
    from fsrun.disk.fs import LocalFileSystem
    from fsrun.run.outside import OutsideQueue

    complaints: list[str] = []
    queue = OutsideQueue(LocalFileSystem(), find_run(run, root), complaints.append)
    if path is not None and not hand_over(queue, path, step, name, complaints):
        return 1  # Of a single PATH the next try may do better: no FINISHED.
    if finish:
        if not queue.finish():
            raise FsrunError("; ".join(complaints) or f"{queue.unit.root}: FINISHED could not be written")
        say("FINISHED")
    return 0


def _check(
    path: str | None,
    step: int | None,
    name: str | None,
    folder: str | None,
    pattern: str,
    finish: bool,
    *,
    watching: bool,
) -> None:
    if path is not None and folder is not None:
        raise UsageError("give PATH or --watch DIR, not both")
    if path is None and folder is None and not finish:
        raise UsageError("give PATH, or --watch DIR, or --finish")
    if path is None and (step is not None or name is not None):
        raise UsageError("--step and --name go with PATH")
    if folder is None and watching:
        raise UsageError("--ready, --until-file, --idle and --job go with --watch")
    if "/" in pattern:
        raise UsageError(f"--glob {pattern}: names in DIR only, without /")
