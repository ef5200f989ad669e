"""The page itself: the files of ``static/``, which come with the package."""

from __future__ import annotations

import os

from starlette.requests import Request
from starlette.responses import Response

from fsrun.core import layout
from fsrun.core.errors import NotFoundError
from fsrun.web.answers import answer
from fsrun.web.site import STATIC

FIRST = "index.html"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
}
"""Suffix -> content type of what is served; nothing else is."""


def serve(request: Request) -> Response:
    """The answer to an address of no other route. Raises ``NotFoundError``."""
    path = request.path_params["path"] or FIRST
    kind = KINDS.get(os.path.splitext(path)[1])
    if kind is None or not layout.is_inside(path) or "\\" in path:
        raise NotFoundError(f"/{path[:200]}: no such page")
    try:
        with open(f"{STATIC}/{path}", "rb") as file:
            return answer(request, file.read(), kind)
    except (OSError, ValueError):
        raise NotFoundError(f"/{path[:200]}: no such page") from None
