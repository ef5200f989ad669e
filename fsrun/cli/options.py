"""Options and arguments that several sub-commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import click

from fsrun.cli.text import clean

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


def find_run(run: str, root: str | None) -> str:
    """Path of the run that RUN means; one that is guessed, by the start of its id or as ``latest``, is named."""
    from fsrun.core.errors import NotFoundError
    from fsrun.run.locate import guess_run, resolve_run

    try:
        return resolve_run(run, root)
    except NotFoundError:
        path = guess_run(run, root)
        if path is None:
            raise
    click.echo(f"fsrun: {clean(run)} is {clean(path)}", err=True)
    return path


class Duration(click.ParamType):  # type: ignore[type-arg]
    """A time in seconds, with an optional unit: ``45``, ``90s``, ``10m``, ``2h``, ``1d``."""

    name = "time"
    _UNITS: ClassVar[dict[str, float]] = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds; anything else than a number with a known unit is a usage error that shows the form."""
        text = str(value).strip().lower()
        unit = self._UNITS.get(text[-1:], 1.0)
        digits = text[:-1] if text[-1:] in self._UNITS else text
        try:
            seconds = float(digits) * unit
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < float("inf"):
            self.fail(f"{value!r} is no time: write 45, 90s, 10m, 2h or 1d", param, ctx)
        return seconds


DURATION = Duration()
