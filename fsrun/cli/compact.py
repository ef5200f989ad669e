"""``fsrun compact RUN``: build data.parquet."""

from __future__ import annotations

import click

from fsrun.cli.busy import busy
from fsrun.cli.options import find_run, root_option, run_argument
from fsrun.cli.text import clean


@click.command(short_help="Build data.parquet, all scalars in one file.")
@run_argument
@root_option
def command(run: str, root: str | None) -> None:
    """Build data.parquet, the scalars of all jobs in one file; of a live run too, where readers add what came after.

    The logs stay. After a crash: the old data.parquet, or none, or the new one.
    """
    from fsrun.run.compact import compact

    path = find_run(run, root)
    with busy(f"building data.parquet of {path}"):
        written = compact(path)
    click.echo(clean(written) if written else "nothing to do: the run has no scalars", err=written is None)
