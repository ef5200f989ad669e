"""The queue of a run as a board: where every checkpoint is, from hand-over to verdict. Reads only."""

from __future__ import annotations

from typing import Any

from fsrun.disk.fs import FileSystem


def board(fs: FileSystem, run_path: str) -> dict[str, Any]:
    """The object of ``/api/runs/RUN/evals``."""
    return {"rule": None, "best": None, "outcomes": [], "board": {}}
