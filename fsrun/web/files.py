"""Files of a run as they are: safe paths, parts of files, and which of them a browser may show."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from fsrun.core.errors import NotFoundError
from fsrun.disk.fs import FileSystem


def listing(fs: FileSystem, run_path: str, path: str) -> dict[str, Any]:
    """The object of ``/api/runs/RUN/files``."""
    return {"path": path, "files": []}


def serve(request: Request, run_path: str, path: str) -> Response:
    """The answer to ``/files/RUN/<path>``."""
    raise NotFoundError(f"{path}: no such file")
