"""Who may ask, and what a browser may do with the answer: stands before all routes.

* Only GET and HEAD.
* Without a token, only under a name of this machine's loopback: a page of somebody else whose name was made to point
  here (DNS rebinding) sends its own name in ``Host``.
* With a token, only who has it: as ``?token=`` (which becomes a cookie, and goes from the address), or as
  ``Authorization: Bearer``. A browser gets a page that asks for it; that page's own files are all that others get.
* Nothing that another site's page embeds or fetches (``Sec-Fetch-Site``).
* Every answer carries the policies below, also errors.

Leaves to others: paths (``files``), what is served inline (``files``).
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, unquote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fsrun.web.answers import refusal
from fsrun.web.site import STATIC

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_ABSOLUTE = re.compile(rb"(?is:https?://([^/?#]*)(/.*)?)")
_METHODS = ("GET", "HEAD")
_ASKING = frozenset({"/ask.js", "/theme.js", "/style.css", "/icon.svg"})
"""What the page that asks for the token is made of: files of the package, which say nothing of any run."""


class Guard:
    """ASGI middleware. ``token``: None where anybody on this machine may ask. ``cookie``: name of the cookie."""

    def __init__(self, app: ASGIApp, token: str | None = None, cookie: str = "fsrun") -> None:
        self._app = app
        self._token = token
        self._cookie = cookie
        # Read once, before anybody asks: the event loop waits for no file.
        self._asks = b"" if token is None else _page()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            scope = _without_origin(scope)
            response = self._look(scope)
            await (response or self._app)(scope, receive, _with_policies(send))
        # Anything else, such as a web socket, is not answered: there is none here.

    def _look(self, scope: Scope) -> Response | None:
        """A refusal or a redirection, or None: go on."""
        headers = Headers(scope=scope)
        if scope["method"] not in _METHODS:
            return refusal(
                405, f"{scope['method'][:20]}: only GET and HEAD are answered", {"Allow": ", ".join(_METHODS)}
            )
        hosts = headers.getlist("host")
        host = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if host is None:
            return refusal(400, "the request names no host, or several")
        if self._token is None and host[1].lower() not in LOOPBACK:
            return refusal(
                403, f"{host[1][:100]} is no name of this machine's loopback: open http://localhost, or use a token"
            )
        if _is_foreign(headers):
            return refusal(403, "another site asks: open the page itself")
        return None if self._token is None else self._ask_for_token(scope, headers, self._token)

    def _ask_for_token(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        pairs = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in pairs if name == "token"]
        if given and _same(given[-1], token):
            # The token leaves the address: history, copied links and the log of a proxy would keep it.
            rest = urlencode([pair for pair in pairs if pair[0] != "token"])
            path = scope.get("raw_path", b"/").decode("latin-1").partition("?")[0]
            # Two slashes in front would be another host.
            response = RedirectResponse("/" + path.lstrip("/\\") + (f"?{rest}" if rest else ""), 303)
            response.set_cookie(self._cookie, token, httponly=True, samesite="lax", path="/")
            response.headers["Cache-Control"] = "no-store"
            return response
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(bearer.strip(), token):
            return None
        if any(_same(value, token) for value in _cookies(headers, self._cookie)):
            return None
        if scope["path"] in _ASKING:
            return None
        challenge = {"WWW-Authenticate": 'Bearer realm="fsrun"'}
        if "text/html" in headers.get("accept", ""):
            return Response(self._asks, 401, challenge | {"Cache-Control": "no-store"}, "text/html; charset=utf-8")
        return refusal(401, "a token is needed: open the address that fsrun up printed", challenge)


def _page() -> bytes:
    with open(f"{STATIC}/ask.html", "rb") as file:
        return file.read()


def _without_origin(scope: Scope) -> Scope:
    """A request for ``http://host/path``, as to a proxy, as one for ``/path`` of that host, whatever ``Host`` says."""
    found = _ABSOLUTE.fullmatch(scope.get("raw_path") or scope["path"].encode())
    if found is None:
        return scope
    path = found[2] or b"/"
    headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
    return {**scope, "path": unquote(path.decode("latin-1")), "raw_path": path} | {
        "headers": [*headers, (b"host", found[1])]
    }


def _is_foreign(headers: Headers) -> bool:
    """Whether a page of another site embeds or fetches this; following a link from it is fine."""
    site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "navigate")
    embedded = headers.get("sec-fetch-dest", "document") != "document"
    return site not in ("none", "same-origin") and (mode != "navigate" or embedded)


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _cookies(headers: Headers, name: str) -> Iterable[str]:
    for line in headers.getlist("cookie"):
        try:
            found = SimpleCookie(line).get(name)
        except CookieError:
            continue
        if found is not None:
            yield found.value


def _with_policies(send: Send) -> Send:
    async def send_with(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with
