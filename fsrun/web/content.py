"""What a run recorded besides scalars, in pages that stay small: console, samples, media, tables, artifacts.

Leaves to others: routes and JSON (``app``), the files themselves (``files``), how they are shown (static/run).
"""

from __future__ import annotations

from typing import Any

from fsrun.disk.fs import FileSystem
from fsrun.web.query import Query


class Content:
    """Answers about what was recorded; called from several threads at once.

    ``run_path`` is the folder of a run. Raises ``UsageError`` for parameters that cannot be, ``NotFoundError`` where
    there is no such thing, ``FsrunError`` and ``OSError`` where the run cannot be read.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs

    def console(self, run_path: str, query: Query) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/console``: ``job``, ``session``, ``offset``, ``limit``, ``find``."""
        return {"size": 0, "offset": 0, "text": "", "next": 0, "done": True}

    def samples(self, run_path: str, query: Query) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/samples``: ``entry``, ``attempt``, ``offset``, ``limit``, ``set``, ``only``."""
        return {"columns": [], "rows": [], "total": 0}

    def media(self, run_path: str, query: Query) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/media``."""
        return {"media": []}

    def tables(self, run_path: str, query: Query) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/tables``."""
        return {"tables": []}

    def table(self, run_path: str, query: Query) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/table``: ``name``, ``step``, ``offset``, ``limit``."""
        return {"columns": [], "rows": [], "total": 0}

    def artifacts(self, run_path: str, query: Query) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/artifacts``."""
        return {"artifacts": []}

    def environment(self, run_path: str, query: Query) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/environment``: ``job``, ``session``."""
        return {"environment": {}}
