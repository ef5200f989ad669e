"""HTTP to engines and routers: one bounded call, what its failure means, and when it is worth another try.

Does: a client that ignores the proxy variables of the shell, holds no more connections than it was told to, reads no
more of a body than it was told to, and turns every failure into a ``CallError`` of a kind. The kinds are a table, and
so is what a kind is worth: ``Retries`` decides from it alone, without a clock of its own. Leaves to others: what is
called (``sglang_api``), and which answers count (``generation``).

Holds nothing on a disk. After a crash: the connections are closed by the system, and the server drops the requests.
"""

from __future__ import annotations

import asyncio
import base64
import random
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import unquote

import orjson

from fsrun.core import codec
from fsrun.core.errors import UsageError

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")

_OTHER_FILES = 512
_QUOTED = 300
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(:\d*)?")
"""Characters of a body that an error repeats."""

KINDS: dict[str, tuple[str, bool | None]] = {
    # kind: what it means, and whether to try again: yes, no, or (None) for a short while only.
    "refused": ("nothing listens there", True),
    "unreachable": ("cannot be reached", True),
    "cut": ("the connection was cut", True),
    "hung": ("no answer within the limit", True),
    "aborted": ("aborted by somebody else", True),
    "busy": ("cannot take requests now", True),
    "workerless": ("the router has no worker that can take it", True),
    "broken": ("failed inside the server", None),
    "nonsense": ("what came back is no answer", None),
    "denied": ("the API key is missing or wrong", False),
    "missing": ("has no such endpoint", False),
    "rejected": ("refused the request", False),
}
_BUSY = frozenset({408, 425, 429, 502, 503, 504})
# What routers call "nobody can take it"; the successor of sglang-router says it with a 404.
_WORKERLESS = (b"no_available_workers", b"no_workers", b"model_not_found", b"no_models_available")


class CallError(Exception):
    """A call without a usable answer.

    ``kind`` is one of ``KINDS``, ``status`` the HTTP status where one came, ``reason`` one line that names the URL.
    ``cause`` is short and the same for the same cause, so that it can be counted.
    """

    def __init__(self, kind: str, url: str, detail: str = "", status: int | None = None, after: float | None = None):
        meaning = KINDS[kind][0]
        self.cause = meaning if status is None or status < 300 else f"HTTP {status}, {meaning}"
        self.reason = f"{shown(url)}: {self.cause}{f': {detail}' if detail else ''}"
        super().__init__(self.reason)
        self.kind = kind
        self.url = url
        self.detail = detail
        self.status = status
        self.after = after
        """Seconds that the server asked to wait (Retry-After)."""

    @property
    def again(self) -> bool | None:
        """Whether to try again: True, False, or None for a short while only."""
        return KINDS[self.kind][1]


@dataclass(frozen=True, slots=True)
class Reply:
    """A 2xx answer, whole."""

    url: str
    status: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON; raises ``CallError`` of kind ``nonsense``."""
        try:
            return codec.loads(self.body)
        except orjson.JSONDecodeError:
            raise CallError("nonsense", self.url, f"no JSON: {_quoted(self.body)}") from None

    def mapping(self) -> dict[str, Any]:
        """The body as a JSON object; raises ``CallError`` of kind ``nonsense``."""
        value = self.json()
        if not isinstance(value, dict):
            raise CallError("nonsense", self.url, f"not a JSON object: {_quoted(self.body)}")
        return value


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of single calls, in seconds and bytes."""

    connect: float = 10.0
    call: float = 30.0
    """A call that is no generation, from its start to the last byte."""
    body: int = 64 << 20
    keep: float = 4.0
    """How long an idle connection is kept: less than the 5 s after which an engine closes it, which would cut the
    request that is just being sent on it."""


class Pace(Protocol):
    """Time as coroutines see it; a fake one lets tests wait for nothing."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemPace:
    """The machine's clock and the loop's sleep."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a failing call is tried again, and with what pauses (seconds)."""

    budget: float = 300.0
    """From the first failure to the last try: longer than a breaker is open (60) and a health check takes (120)."""
    short: float = 60.0
    """The same for failures that another try seldom mends, such as a 500."""
    first: float = 0.25
    factor: float = 2.0
    most: float = 10.0

    def within(self, error: CallError) -> float:
        """Seconds in which a failure of this kind is tried again."""
        if error.again is None:
            return min(self.short, self.budget)
        return self.budget if error.again else 0.0


@dataclass(slots=True)
class Retries:
    """The tries of one call. Holds no clock: the caller says what time it is."""

    backoff: Backoff
    _first: float | None = None
    _tries: int = 0

    def pause(self, error: CallError, now: float, luck: float) -> float | None:
        """Seconds until the next try, or None: give up.

        ``luck`` is uniform in [0, 1): many that failed together must not come back together.
        """
        if self._first is None:
            self._first = now
        left = self._first + self.backoff.within(error) - now
        if left <= 0:
            return None
        pause = min(self.backoff.first * self.backoff.factor**self._tries, self.backoff.most) * (0.5 + luck / 2)
        self._tries += 1
        if error.after is not None:
            pause = max(pause, min(error.after, self.backoff.most))
        return min(pause, left)


async def keep_trying(
    call: Callable[[], Awaitable[T]],
    backoff: Backoff,
    pace: Pace | None = None,
    *,
    luck: Callable[[], float] = random.random,
    on_error: Callable[[CallError, float], None] | None = None,
) -> T:
    """Call until it answers, the error is one that no try mends, or the budget is used; raises the last error."""
    pace = pace or SystemPace()
    tries = Retries(backoff)
    while True:
        try:
            return await call()
        except CallError as error:
            pause = tries.pause(error, pace.monotonic(), luck())
            if pause is None:
                raise
            if on_error is not None:
                on_error(error, pause)
        await pace.sleep(pause)


@dataclass(slots=True)
class Client:
    """A pool of connections to engines and routers. ``async with`` it; one loop only.

    ``connections`` bounds what is open at once, to all servers together.
    """

    connections: int = 100
    api_key: str | None = field(default=None, repr=False)
    limits: Limits = field(default_factory=Limits)
    _session: aiohttp.ClientSession | None = None
    _logins: dict[str, str] = field(default_factory=dict, repr=False)
    """Of servers whose URL had a user and password: what stands in the header, by scheme, host and port."""

    async def __aenter__(self) -> Client:
        """Open; sends nothing yet."""
        aiohttp = needed("aiohttp")
        _allow_files(self.connections)
        self._session = aiohttp.ClientSession(
            # The proxy of the shell is for the internet: it would answer 503 for an engine, in its own name.
            trust_env=False,
            connector=aiohttp.TCPConnector(limit=self.connections, keepalive_timeout=self.limits.keep),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; requests under way are dropped."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def known(self, url: str) -> str:
        """The URL without the user and password that it may carry, which calls to that server use from here on."""
        plain = shown(url)
        if plain != url:
            user, _, password = url.partition("://")[2].removesuffix(plain.partition("://")[2])[:-1].partition(":")
            login = f"{unquote(user)}:{unquote(password)}".encode()
            self._logins[_origin(plain)] = f"Basic {base64.b64encode(login).decode()}"
        return plain

    async def get(self, url: str, *, limit: float | None = None, key: str | None = None) -> Reply:
        """GET; raises ``CallError`` where no 2xx comes."""
        return await self.call("GET", url, limit=limit, key=key)

    async def post(self, url: str, value: Any = None, *, limit: float | None = None, key: str | None = None) -> Reply:
        """POST ``value`` as JSON; raises ``CallError`` where no 2xx comes."""
        return await self.call("POST", url, orjson.dumps({} if value is None else value), limit=limit, key=key)

    async def call(
        self, method: str, url: str, body: bytes | None = None, *, limit: float | None = None, key: str | None = None
    ) -> Reply:
        """One request within ``limit`` seconds (``limits.call`` by default); raises ``CallError`` where no 2xx comes.

        ``key`` stands in for the client's API key.
        """
        session = self._session
        assert session is not None, "open the client first: async with Client() as client"
        aiohttp = needed("aiohttp")
        key = key if key is not None else self.api_key
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        elif (login := self._logins.get(_origin(url))) is not None:
            headers["Authorization"] = login
        seconds = self.limits.call if limit is None else limit
        times = aiohttp.ClientTimeout(total=seconds, sock_connect=min(self.limits.connect, seconds))
        try:
            async with session.request(
                method, url, data=body, headers=headers, timeout=times, allow_redirects=False
            ) as response:
                data = await _read(response, self.limits.body)
                if 200 <= response.status < 300:
                    return Reply(url, response.status, data)
                raise _refusal(url, response.status, data, response.headers.get("Retry-After"))
        except (aiohttp.ClientError, OSError, ValueError) as error:  # TimeoutError is an OSError
            raise _failure(url, error, seconds) from error


def needed(name: str) -> Any:
    """Import a package of the extra ``sglang``; raises ``UsageError`` where it is not installed."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"evaluation on engines needs {name}: pip install 'fsrun[sglang]' ({error})") from error


def base_url(text: str) -> str:
    """``host:port``, with or without ``http://``, as a URL without a slash at its end; raises ``UsageError``."""
    from urllib.parse import urlsplit

    url = text.strip()
    url = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{shown(text)}: no URL: {error}") from None
    if parts.username is not None:
        raise UsageError(
            f"{shown(text)}: a URL with a user or password would show it to everybody who sees this command line; give "
            "the engines' API key in FSRUN_EVAL_API_KEY"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.query or parts.fragment:
        raise UsageError(f"{shown(text)}: no URL of an engine or router; write http://HOST:PORT")
    return url.rstrip("/")


def shown(url: str) -> str:
    """A URL as messages show it: without the user and password that it may carry."""
    scheme, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    authority, slash, path = rest.partition("/")
    if "@" not in authority and "@" in path and not _HOST.fullmatch(authority):
        # A password with a slash in it, which nobody escaped.
        authority, slash, path = rest.rpartition("@")[2], "", ""
    return f"{scheme}{mark}{authority.rpartition('@')[2]}{slash}{path}"


def _origin(url: str) -> str:
    """Scheme, host and port of a URL."""
    scheme, mark, rest = url.partition("://")
    return scheme + mark + rest.partition("/")[0]


def _allow_files(connections: int) -> None:
    """Let this process have as many connections open: the usual soft limit of 1,024 descriptors is soon used up."""
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = connections + _OTHER_FILES
        if soft != resource.RLIM_INFINITY and soft < wanted:
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    except (ImportError, OSError, ValueError):
        pass  # what is lacking then shows as connections that fail, with their reason


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The body, up to ``most`` bytes: a server that sends for ever must not fill the memory."""
    length = response.content_length
    if length is not None and length <= most and not response.headers.get("Content-Encoding"):
        return await response.read()
    data = bytearray()
    async for chunk in response.content.iter_any():
        data += chunk
        if len(data) > most:
            response.close()
            raise CallError("nonsense", str(response.url), f"more than {most} bytes", response.status)
    return bytes(data)


def _refusal(url: str, status: int, body: bytes, after: str | None) -> CallError:
    """What a status other than 2xx means."""
    seconds = float(after) if after is not None and after.isdecimal() else None
    detail = _message(body)
    if status in (404, 503) and any(word in body for word in _WORKERLESS):
        return CallError("workerless", url, detail, status, seconds)
    if status in _BUSY:
        return CallError("busy", url, detail, status, seconds)
    if status >= 500 and status != 501:
        return CallError("broken", url, detail, status, seconds)
    if status in (401, 403):
        return CallError("denied", url, detail, status)
    if status in (404, 405, 501):
        return CallError("missing", url, detail, status)
    return CallError("rejected", url, detail, status)


def _failure(url: str, error: Exception, seconds: float) -> CallError:
    """What an exception of the client means."""
    aiohttp = needed("aiohttp")
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        return CallError("missing", url, "no such URL")
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return CallError("unreachable", url, "no connection within the limit")
    if isinstance(error, TimeoutError):
        return CallError("hung", url, f"{seconds:g} s")
    if isinstance(error, aiohttp.ClientConnectorError):
        # A certificate that is not trusted is one of these too, without an error of the system.
        cause = getattr(error, "os_error", None) or error
        refused = isinstance(cause, ConnectionRefusedError)
        return CallError("refused" if refused else "unreachable", url, "" if refused else _line(cause))
    if isinstance(error, aiohttp.ClientResponseError | ValueError):
        return CallError("nonsense", url, _line(error))
    return CallError("cut", url, _line(error))


def _message(body: bytes) -> str:
    """What the server says of an error: the message within its JSON, or the start of the text."""
    try:
        value = codec.loads(body)
    except orjson.JSONDecodeError:
        return _quoted(body)
    for name in ("error", "message", "detail"):
        while isinstance(value, dict) and name in value:
            value = value[name]
    return value[:_QUOTED] if isinstance(value, str) else _quoted(body)


def _quoted(body: bytes) -> str:
    return " ".join(body[:_QUOTED].decode("utf-8", "replace").split())


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:_QUOTED] or type(error).__name__
