"""Files of a run as they are: listings, whole files and parts of them, and which of them a browser may show.

A file of a run may hold anything, such as a page or an image with a script in it. Images, sound, video and plain text
are shown, under a policy that lets nothing in them run; all else is a download. Leaves to others: that no path or link
leads out of the run folder (``disk.beneath``).
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from email.utils import formatdate
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from fsrun.core.errors import NotFoundError
from fsrun.disk.beneath import names_below, open_file
from fsrun.web.query import Query

POLICY = (
    "sandbox; default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'none'"
)
"""Of a file: no script, no form, no origin; a browser's own page around a picture has styles."""
FILM_POLICY = POLICY.removeprefix("sandbox; ")
"""Of sound and film: the browser's own page around one asks for parts of it, which a page without origin may not."""
_TEXT = "text/plain; charset=utf-8"
_TEXTS = "cfg conf csv diff end err ini json jsonl lock log md out patch rst toml tsv txt yaml yml"
_PICTURES = {"jpg": "image/jpeg", "jpeg": "image/jpeg", "png": "image/png", "gif": "image/gif", "webp": "image/webp"}
_PICTURES |= {"avif": "image/avif", "bmp": "image/bmp"}
_SOUNDS = {"wav": "audio/wav", "mp3": "audio/mpeg", "ogg": "audio/ogg", "oga": "audio/ogg", "opus": "audio/ogg"}
_SOUNDS |= {"flac": "audio/flac", "m4a": "audio/mp4", "aac": "audio/aac"}
_FILMS = {"mp4": "video/mp4", "m4v": "video/mp4", "webm": "video/webm", "ogv": "video/ogg", "mov": "video/quicktime"}
SHOWN: dict[str, str] = {**dict.fromkeys(_TEXTS.split(), _TEXT), **_PICTURES, **_SOUNDS, **_FILMS}
"""Suffix -> content type of what a browser may show. SVG and HTML are not among them: both may hold scripts."""
_PLAYED = ("audio/", "video/")
_DOWNLOAD = "application/octet-stream"
_CHUNK = 1 << 18
_LISTED = 1000
_MOST_LISTED = 10_000
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def listing(run_path: str, key: str, query: Query) -> dict[str, Any]:
    """The object of ``/api/runs/RUN/files``: what stands in the folder ``path`` of a run; ``offset``, ``limit``.

    ``href`` gives the file itself, also where its name is no text. Raises ``OSError``.
    """
    path = (query.text("path") or "").strip("/")
    start = query.integer("offset", 0, least=0, most=10**9) or 0
    limit = query.integer("limit", _LISTED, least=1, most=_MOST_LISTED)
    names, total = names_below(run_path, path, start, limit)
    files = []
    for found in names:
        inside = f"{path}/{found.name}" if path else found.name
        facts: dict[str, Any] = {"name": found.name, "path": inside, "kind": found.kind, "link": found.link}
        facts |= {"size": found.size if found.kind == "file" else None}
        facts |= {"time": None if found.mtime_ns is None else found.mtime_ns / 1e9}
        facts |= {"shown": found.kind == "file" and _kind_of(found.name) != _DOWNLOAD}
        files.append(facts | {"href": href(key, inside) if found.kind == "file" else None})
    return {"path": path, "offset": start, "total": total, "files": files}


def href(key: str, path: str) -> str:
    """The address of a file of a run; ``path`` is relative to the run folder."""
    return quote(os.fsencode(f"/files/{key}/{path}"))


def _kind_of(name: str) -> str:
    return SHOWN.get(os.path.splitext(name)[1][1:].lower(), _DOWNLOAD)


def serve(request: Request, run_path: str) -> Response:
    """The answer to ``/files/<project>/<run>/<path>``; ``?download``: to be kept, not shown. Raises ``OSError``."""
    # The bytes of the address, since a name need not be text.
    path = os.fsdecode(unquote_to_bytes(request.scope["raw_path"].partition(b"?")[0])).split("/", 4)[4]
    try:
        opened = _Opened(open_file(run_path, path))
    except IsADirectoryError:
        raise NotFoundError(f"{path[:200]} is a folder") from None
    facts = os.fstat(opened.descriptor)
    tag = f'"{facts.st_ino:x}-{facts.st_size:x}-{facts.st_mtime_ns:x}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Accept-Ranges": "bytes"}
    headers |= {"Last-Modified": formatdate(facts.st_mtime, usegmt=True)}
    headers |= {"Content-Security-Policy": FILM_POLICY if _kind_of(path).startswith(_PLAYED) else POLICY}
    headers["Content-Disposition"] = _disposition(path, request)
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    part = _part(request, facts.st_size, tag)
    if part is None:
        return Response(status_code=416, headers=headers | {"Content-Range": f"bytes */{facts.st_size}"})
    start, length = part
    status = 200
    if "range" in request.headers and part != (0, facts.st_size):
        status = 206
        headers["Content-Range"] = f"bytes {start}-{start + length - 1}/{facts.st_size}"
    headers["Content-Length"] = str(length)
    sent = 0 if request.method == "HEAD" else length
    return StreamingResponse(opened.read(start, sent), status, headers, _kind_of(path))


def _disposition(path: str, request: Request) -> str:
    name = path.rpartition("/")[2].encode("utf-8", "replace").decode()
    shown = _kind_of(name) != _DOWNLOAD and "download" not in request.query_params
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", name)
    return f"{'inline' if shown else 'attachment'}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def _part(request: Request, size: int, tag: str) -> tuple[int, int] | None:
    """The (start, length) that is asked for; the whole where that is not one range. None: outside of the file."""
    found = _RANGE.fullmatch(request.headers.get("range", ""))
    if found is None or found[0] == "bytes=-" or request.headers.get("if-range", tag) != tag:
        return 0, size
    if not found[1]:
        length = min(int(found[2]), size)
        return (size - length, length) if length else None
    start, end = int(found[1]), min(int(found[2] or size - 1), size - 1)
    return (start, end - start + 1) if start <= end else None


class _Opened:
    """An open file, closed with the last who holds it: an answer that comes too late is dropped, and asked for nothing.

    A read that was given up holds it too, so that its number is of no other file by then.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        os.close(self.descriptor)

    def _part(self, length: int, start: int) -> bytes:
        return os.pread(self.descriptor, length, start)

    async def read(self, start: int, length: int) -> AsyncIterator[bytes]:
        """Its bytes."""
        while length > 0:
            data = await anyio.to_thread.run_sync(self._part, min(_CHUNK, length), start, abandon_on_cancel=True)
            if not data:  # it was cut meanwhile: the connection ends short of what was promised
                return
            start, length = start + len(data), length - len(data)
            yield data
