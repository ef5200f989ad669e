"""The command ``fsrun``: finds the sub-command, turns errors into one line and an exit code.

Sub-commands stand one a file and are imported when asked for, so that ``fsrun ls`` loads nothing that it does not use.
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 held by another process, 4 not found, 5 not valid, signal n 128+n.
"""

from __future__ import annotations

import atexit
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

import click

import fsrun
from fsrun.cli.text import clean, clean_lines
from fsrun.core.errors import FsrunError, HeldError, InvalidError, NotFoundError, UsageError

COMMANDS = {
    "demo": "fsrun.cli.demo",
    "ls": "fsrun.cli.ls",
    "show": "fsrun.cli.show",
    "logs": "fsrun.cli.logs",
    "export": "fsrun.cli.export",
    "enqueue": "fsrun.cli.enqueue",
    "eval": "fsrun.cli.eval",
    "retry": "fsrun.cli.retry",
    "compact": "fsrun.cli.compact",
    "check": "fsrun.cli.check",
    "daemon": "fsrun.cli.daemon",
    "up": "fsrun.cli.up",
    "doctor": "fsrun.cli.doctor",
}
"""Name of a sub-command -> module that defines it as ``command``."""

EXIT_CODES: dict[type[FsrunError], int] = {UsageError: 2, HeldError: 3, NotFoundError: 4, InvalidError: 5}
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Stopped(SystemExit):
    """A signal asked this command to end: everything on the way takes it for leaving, and gives back what it holds."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


class Commands(click.Group):
    """The group of all sub-commands; the one place where an exception becomes a line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one sub-command."""
        module = COMMANDS.get(cmd_name)
        return None if module is None else importlib.import_module(module).command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the sub-command; what click would handle in its own way is taken out of its reach."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Stopped(signal.SIGINT) from None
        except BrokenPipeError:
            raise Stopped(signal.SIGPIPE) from None

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run and exit. Every error is one line on stderr, whatever it holds; a traceback of the user's may follow."""
        extra["standalone_mode"] = False
        try:
            code = super().main(*args, **extra)
            sys.stdout.flush()
        except (Exception, Stopped) as error:  # noqa: BLE001 - the last one to see it
            code = _explain(error)
        sys.exit(code if isinstance(code, int) else 0)


def _explain(error: BaseException) -> int:
    """Print the line of an error; return its exit code."""
    if isinstance(error, Stopped | BrokenPipeError):
        number = error.number if isinstance(error, Stopped) else int(signal.SIGPIPE)
        if number == signal.SIGPIPE:
            _silence_stdout()
        return 128 + number
    if isinstance(error, click.UsageError) and type(error).__name__ == "NoArgsIsHelpError":
        click.echo(error.format_message(), err=True)  # no argument at all: click's way to print the help
        return 2
    code, message = _read_error(error)
    if os.environ.get("FSRUN_DEBUG"):
        import traceback

        traceback.print_exception(error)
    click.echo(f"fsrun: {clean(message)}", err=True)
    if isinstance(error, FsrunError) and error.details:
        click.echo(clean_lines(error.details.rstrip("\n")), err=True)
    return code


def _read_error(error: BaseException) -> tuple[int, str]:
    if isinstance(error, FsrunError):
        return next((c for kind, c in EXIT_CODES.items() if isinstance(error, kind)), 1), str(error)
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "fsrun"
        return error.exit_code, f"{error.format_message().rstrip('.')} (see {path} --help)"
    if isinstance(error, click.ClickException):
        return error.exit_code, error.format_message()
    if isinstance(error, click.Abort):
        return 1, "stopped: nothing was confirmed"
    if isinstance(error, OSError):
        return 1, f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return 1, f"fault in fsrun itself: {type(error).__name__}: {error} (FSRUN_DEBUG=1 prints where)"


def _silence_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not complain of the pipe once more."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError, AttributeError):
        pass


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(fsrun.__version__, message="fsrun %(version)s, protocol 1.0")
def commands() -> None:
    """A training run is a folder: look at runs, hand over checkpoints, evaluate, repair.

    RUN is the path of a run's folder, or an id under --root, else $FSRUN_ROOT, else ./runs; also the start of the id of
    one run, or latest for the newest one.
    """


def _leave(ending: SystemExit) -> None:
    """End the process where Arrow was loaded, once Python has done all that it does at its end.

    What it leaves out are the destructors of native libraries: Arrow's threads may still look at what these take away,
    and then a command that has said all it had to say ends with SIGABRT, once in a hundred times on a busy machine.
    Arrow has no call that ends its threads, and one thread alone would make each read slower to be sure at the end.
    """
    if "pyarrow" not in sys.modules:
        return
    code = 1
    try:
        code = _code_of(ending)
        # Waits for threads that are no daemons, as Python does. A signal that comes meanwhile ends that wait alone:
        # open runs are ended by an exit function.
        code = _go_through("waiting for threads", threading._shutdown, code)  # type: ignore[attr-defined]
        code = _go_through("ending", atexit._run_exitfuncs, code)
        code = _go_through("printing", _flush, code)
    finally:
        os._exit(code & 0xFF)


def _code_of(ending: SystemExit) -> int:
    """The exit code as Python makes it: what is no number is printed, and is 1."""
    if ending.code is None or isinstance(ending.code, int):
        return ending.code or 0
    with suppress(Exception):  # its text may be anything's
        click.echo(str(ending.code), err=True)
    return 1


def _go_through(what: str, act: Callable[[], object], code: int) -> int:
    """Do a part of the end, and say what it raised; returns the exit code."""
    try:
        act()
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parts that come after it are to be done
        with suppress(Exception):
            number = error.number if isinstance(error, Stopped) else 0
            why = signal.Signals(number).name if number else f"{type(error).__name__}: {error}"
            click.echo(f"fsrun: {clean(why)} while {what}", err=True)
        return code or (128 + error.number if isinstance(error, Stopped) else 1)
    return code


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped(number)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the console script; ``arguments`` default to those of the process."""
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding lacks is shown escaped; it is no error.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives
    for number in _SIGNALS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)
    try:
        commands.main(arguments, prog_name="fsrun")
    except SystemExit as ending:
        if arguments is None:  # the process is the command's own
            _leave(ending)
        raise
