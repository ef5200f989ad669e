"""All runs below a root as rows of one table, kept up to date by a thread. Reads only."""

from __future__ import annotations

from typing import Any

from fsrun.disk.fs import FileSystem


class Catalog:
    """Rows by key, ``project/run`` of the folders' names; ``since`` gives what changed."""

    def __init__(self, fs: FileSystem, root: str) -> None:
        self._fs, self._root = fs, root

    def start(self) -> None:
        """Begin to scan, in a thread."""

    def stop(self) -> None:
        """End the thread."""

    def path(self, project: str, run: str) -> str:
        """Folder of a run. Raises ``NotFoundError``."""
        return f"{self._root}/{project}/{run}"

    def since(self, cursor: str | None) -> dict[str, Any]:
        """The object of ``/api/runs``: the rows that changed since ``cursor``; all of them without."""
        return {"cursor": "", "scanning": False, "runs": [], "gone": []}
