"""``fsrun compact RUN``: build data.parquet."""

from __future__ import annotations

import click

from fsrun.cli.options import root_option, run_argument


@click.command(short_help="Build data.parquet, all scalars in one file.")
@run_argument
@root_option
def command(run: str, root: str | None) -> None:
    """Build data.parquet, the scalars of all jobs in one file; of a live run too, where readers add what came after.

    The logs stay. After a crash: the old data.parquet, or none, or the new one.
    """
    from fsrun.run.compact import compact
    from fsrun.run.reader import resolve_run

    written = compact(resolve_run(run, root))
    click.echo(written if written else "nothing to do: data.parquet holds all there is", err=written is None)
