"""Scalars and samples of the machine as the charts of the page need them: cached, and reduced to what a chart shows.

Leaves to others: routes and JSON (``app``), how charts look (static/charts).
"""

from __future__ import annotations

from typing import Any

from fsrun.disk.fs import FileSystem
from fsrun.web.query import Query


class Series:
    """Answers about charts; called from several threads at once.

    ``run_path`` is the folder of a run. Raises ``UsageError`` for parameters that cannot be, ``FsrunError`` and
    ``OSError`` where the run cannot be read.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs

    def tags(self, run_path: str) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/tags``."""
        return {"tags": [], "cursor": ""}

    def series(self, run_path: str, query: Query) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/series``: ``tag`` (repeatable), ``x``, ``from``, ``to``, ``points``."""
        return {"series": [], "cursor": ""}

    def system(self, run_path: str, query: Query) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/system``: ``job``, ``points``."""
        return {"series": [], "cursor": ""}
