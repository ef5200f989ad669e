"""``fsrun up ROOT``: a page about all runs below a root, with the daemon beside it, until told to stop."""

from __future__ import annotations

import html
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import click

from fsrun.cli.text import clean
from fsrun.core.timing import ROOT_WAIT

if TYPE_CHECKING:
    import socket
    from types import FrameType

    from fsrun.web.server import Server

PORT = 6070
TOKEN_VARIABLE = "FSRUN_TOKEN"
_SHORTEST = 16
_BROWSER = "fsrun-browser"
_LEADS = 60.0
"""Seconds that a browser has to open the file which leads it to the page."""
_GRACE = 1.0
"""Seconds that the file has to go when the page ends."""
_LEADING = (
    '<!doctype html><meta charset="utf-8"><title>fsrun</title>'
    '<meta http-equiv="refresh" content="0; url={address}"><a href="{address}">fsrun</a>\n'
)
_NO_CHARTS = (
    "no charts: the library for them was not there when fsrun was built; with npm it is: "
    "apt-get install npm; sh tools/setup web"
)


@click.command(short_help="Show the runs below a root in a browser; keeps them in order as well.")
@click.argument("root", required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0: any that is free.")
@click.option("--host", default="localhost", show_default=True, help="Address to listen on.")
@click.option("--token", "wants_token", is_flag=True, help="Ask for a token on this machine too, where others use it.")
@click.option("--no-daemon", is_flag=True, help="Only show: start no daemon.")
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
def command(root: str | None, port: int, host: str, wants_token: bool, no_daemon: bool, opens: bool) -> int:
    """Serve a page about the runs below ROOT (default: $FSRUN_ROOT, else ./runs), until SIGTERM or Ctrl-C.

    It reads files and writes none. The daemon that keeps the runs in order (see fsrun daemon) runs beside it and ends
    with it; where one of this root runs on this host already, that one stays. Anybody on this machine may read the
    page; with --token, and with a --host beyond this machine, only who has the address that is printed. $FSRUN_TOKEN,
    of 16 characters or more, is the token where it is to stay the same.
    """
    try:
        from fsrun.web.app import make_app
        from fsrun.web.companion import Companion
        from fsrun.web.server import Server, address_of, bind, is_loopback
        from fsrun.web.site import Site, has_charts
    except ImportError as error:
        from fsrun.core.errors import UsageError

        if (error.name or "").startswith("fsrun."):  # a broken installation, which no extra mends
            raise
        raise UsageError(f"the page needs {error.name}: pip install 'fsrun[web]'") from error
    from fsrun.daemon.service import leave
    from fsrun.run.roots import resolve_root

    path = _existing(resolve_root(root))
    token = _token(wants_token or not is_loopback(host))
    sockets = bind(host, port)
    port = sockets[0].getsockname()[1]
    address = address_of(host, port, token)
    companion = None if no_daemon else Companion(path, _note)
    over = threading.Event()

    def began() -> None:
        sys.stdout.write(f"fsrun shows {clean(path)} on {address}\n")
        sys.stdout.flush()
        if not has_charts():
            _note(_NO_CHARTS)
        if companion is not None:
            companion.start()
        if opens:
            _open(address, token, over)

    site = Site(path)
    if companion is not None:
        site.awaits_daemon = lambda: companion.is_kept
    server = Server(make_app(site, token=token, cookie=f"fsrun-{port}"), began)
    try:
        code = _serve(server, sockets)
    finally:
        over.set()
        if companion is not None:
            companion.close()
        for thread in threading.enumerate():
            if thread.name == _BROWSER:
                thread.join(_GRACE)
    # Threads of it may hang in the file system; nothing is lost by that, since it writes nothing.
    leave(code)
    return code


def _serve(server: Server, sockets: list[socket.socket]) -> int:
    """Serve until a signal comes; returns the exit code: 0 after SIGTERM, as that of the daemon."""
    hung_up = []

    def hang_up(number: int, frame: FrameType | None) -> None:
        hung_up.append(number)
        server.handle_exit(number, frame)

    signal.signal(signal.SIGHUP, hang_up)
    try:
        server.run(sockets)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except SystemExit as stopped:
        # The server ends in order, then raises the signal again, which the command line has turned into this.
        return 0 if stopped.code == 128 + signal.SIGTERM else 1
    return 128 + signal.SIGHUP if hung_up else 0


def _existing(root: str, limit: float = ROOT_WAIT, is_folder: Callable[[str], bool] = os.path.isdir) -> str:
    """The root, looked for by a thread, since the mount that it is on may hang."""
    from fsrun.core.errors import FsrunError, NotFoundError

    found: list[bool] = []
    look = threading.Thread(target=lambda: found.append(is_folder(root)), name="fsrun-root", daemon=True)
    look.start()
    look.join(limit)
    if not found:
        raise FsrunError(f"{root}: its file system has not answered for {limit:g} s; try again once ls does")
    if not found[0]:
        raise NotFoundError(f"{root}: no such folder; give the root of the runs, or set $FSRUN_ROOT")
    return root


def _token(needed: bool) -> str | None:
    from fsrun.core.errors import UsageError

    given = os.environ.get(TOKEN_VARIABLE)
    if given:
        if len(given) < _SHORTEST or not given.isascii() or not given.replace("-", "").replace("_", "").isalnum():
            raise UsageError(f"${TOKEN_VARIABLE} is to have {_SHORTEST} letters, digits, - and _, or more")
        return given
    if not needed:
        return None
    import secrets

    return secrets.token_urlsafe(24)


def _open(address: str, token: str | None, over: threading.Event) -> None:
    """Open a browser that has a window; one in the terminal would take that over. ``over``: the page ends."""
    import webbrowser

    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        browser = None
    if browser is None or type(browser) is webbrowser.GenericBrowser:
        _note("no browser was found here to open it in")
        return
    work = partial(_lead, browser.open, address, over) if token else partial(browser.open, address)
    threading.Thread(target=work, name=_BROWSER, daemon=True).start()


def _lead(show: Callable[[str], object], address: str, over: threading.Event) -> None:
    """Open an address that nobody else may see by way of a file of this user's: a process's words are seen by all."""
    import tempfile
    from pathlib import Path

    from fsrun.core.errors import UsageError
    from fsrun.disk.locks import runtime_folder

    try:
        descriptor, path = tempfile.mkstemp(".html", "open-", runtime_folder(os.environ))
    except (OSError, UsageError) as error:
        _note(f"the browser is not opened: {error}")
        return
    try:
        with open(descriptor, "w") as file:
            file.write(_LEADING.format(address=html.escape(address)))
        show(Path(path).as_uri())
        over.wait(_LEADS)
    finally:
        with suppress(OSError):
            os.unlink(path)


def _note(line: str) -> None:
    click.echo(f"fsrun: {clean(line)}", err=True)
