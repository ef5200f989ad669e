"""How values become answers: JSON that always encodes, an ETag with which it is sent once, gzip where it pays."""

from __future__ import annotations

import gzip
import hashlib
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from fsrun.core import codec

JSON = "application/json"
_WORTH_ZIPPING = 1024
_LEVEL = 1
"""Of gzip: the list of ten thousand runs is 10 MB, and takes 0.1 s so."""


def encode(value: Any) -> bytes:
    """Return a value as JSON. NaN is null; what JSON has no place for is replaced, such as bytes of a name."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:
        # An integer of more than 64 bits, or a name that is no UTF-8.
        return codec.encode_shown(value)


def answer(
    request: Request, body: bytes, kind: str, *, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """An answer with an ETag of its content: 304 without content where the browser has just that."""
    tag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
    extra = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"} | (headers or {})
    if status == 200 and tag in [
        given.strip().removeprefix("W/") for given in request.headers.get("if-none-match", "").split(",")
    ]:
        return Response(status_code=304, headers=extra)
    if len(body) >= _WORTH_ZIPPING and "gzip" in request.headers.get("accept-encoding", ""):
        body = gzip.compress(body, _LEVEL, mtime=0)
        extra["Content-Encoding"] = "gzip"
    return Response(body, status, extra, kind)


def refusal(status: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    """An answer that says why there is none."""
    return Response(encode({"error": reason}), status, {"Cache-Control": "no-store"} | (headers or {}), JSON)
