"""Shows a person that long work goes on: a spinner on stderr where that is a terminal, nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fsrun.cli.text import clean


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show ``what`` with a spinner and the time it has taken, for as long as the block runs."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(clean(what), total=None)
        yield
