"""Options and arguments that several sub-commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def root_option(function: Decorated) -> Decorated:
    """``--root``: where ids are looked up."""
    return click.option(
        "--root",
        metavar="DIR",
        help="Folder of all runs, where a RUN that is an id is.  [default: $FSRUN_ROOT, else ./runs]",
    )(function)


def json_option(function: Decorated) -> Decorated:
    """``--json``: the state as JSON, its keys fixed for scripts."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")(function)


def run_argument(function: Decorated) -> Decorated:
    """``RUN``: a path or an id."""
    return click.argument("run")(function)
