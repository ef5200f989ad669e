"""What all routes share: the root, the catalog of its runs, and who answers about one of them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import Any

import fsrun
from fsrun.core.timing import STATUS_INTERVAL
from fsrun.daemon.status import running
from fsrun.disk.fs import FileSystem
from fsrun.disk.inside import InsideFileSystem
from fsrun.disk.locks import runtime_folder
from fsrun.run.inspect import inspect_logs, inspect_now
from fsrun.web.board import Board
from fsrun.web.catalog import Catalog
from fsrun.web.content import Content
from fsrun.web.recent import Recent
from fsrun.web.series import Series

STATIC = f"{os.path.dirname(os.path.abspath(__file__))}/static"
CHARTS = "vendor/uPlot.esm.js"
"""The chart library, below ``STATIC``; it is brought in where the package is built."""


class Site:
    """A root and those who answer about it. ``close`` ends the thread of the catalog."""

    def __init__(self, root: str, fs: FileSystem | None = None) -> None:
        self.root = root
        self.fs = fs or InsideFileSystem(root)
        self.catalog = Catalog(self.fs, root)
        self.series = Series(self.fs)
        self.content = Content(self.fs)
        self._board = Board(self.fs)
        self.awaits_daemon: Callable[[], bool] = lambda: False
        """Whether a daemon of the root was started beside the page, which says so of itself in a moment."""
        self._shown, self._boards, self._read = Recent(), Recent(), Recent(share=0.05)

    def start(self) -> None:
        """Begin to scan the root."""
        self.catalog.start()

    def close(self) -> None:
        """Stop scanning."""
        self.catalog.stop()

    def show(self, run_path: str) -> dict[str, Any]:
        """The object of ``/api/runs/RUN``: that of ``fsrun show --json``. Raises as ``inspect_run`` does.

        What takes reading whole logs is made anew less often than the rest.
        """

        def now() -> dict[str, Any]:
            return inspect_now(self.fs, run_path, self._board.evals(run_path), now_ns=time.time_ns())

        state = self._shown.get(run_path, now)
        return {**state, **self._read.get(run_path, lambda: inspect_logs(self.fs, run_path, state))}

    def evals(self, run_path: str) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/evals``. Raises ``OSError``."""
        return dict(self._boards.get(run_path, lambda: self._board.board(run_path)))

    def info(self) -> dict[str, Any]:
        """The object of ``/api/info``. Looks at nothing of the root, so that it answers while that hangs."""
        daemon = daemon_of(self.root)
        return {
            "version": fsrun.__version__,
            "root": self.root,
            "host": socket.gethostname(),
            "daemon": daemon,
            "awaits_daemon": daemon is None and self.awaits_daemon(),
            "charts": has_charts(),
        }


def has_charts() -> bool:
    """Whether the chart library is there."""
    return os.path.isfile(f"{STATIC}/{CHARTS}")


def daemon_of(root: str) -> dict[str, Any] | None:
    """What the daemon of a root says of itself, if one runs on this host for this user."""
    try:
        found = running(runtime_folder(os.environ), root)
    except (OSError, fsrun.FsrunError):
        return None
    keys = ("pid", "started", "written", "runs", "live", "rounds", "did", "problems", "hanging")
    return None if found is None else {key: found.get(key) for key in keys} | {"interval_s": STATUS_INTERVAL}
