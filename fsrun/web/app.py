"""The routes: which address gives what. All of them only read.

A file system that hangs holds up the thread that asked it and nothing else: the request is answered with 503, and pages
and ``/api/info`` go on.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from fsrun.core.errors import FsrunError, InvalidError, NotFoundError, UsageError
from fsrun.disk.fs import NO_FILE
from fsrun.web import files, metrics, pages
from fsrun.web.answers import JSON, answer, encode, refusal
from fsrun.web.guard import Guard
from fsrun.web.past import past
from fsrun.web.query import Query
from fsrun.web.site import Site
from fsrun.web.turns import Turns

LIMIT = 30.0
"""Seconds after which a file system is said to hang."""
THREADS = 24
"""That may wait for the file system at one time; a page asks for about six things at once."""
_WIDTH = 4
"""Of them, so many for the files of one run, and for what is recorded beside its scalars."""
_ALONE = {"": "show", "/evals": "evals", "/tags": "scalars", "/series": "scalars", "/system": "machine"}
"""What one thread does for a run at a time, since it brings forward what is kept of that; the others wait outside."""
_NOTHING_THERE = NO_FILE | {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}
_RUN = "/api/runs/{project}/{run}"


class _Anything(PathConvertor):
    """A path of which a name may hold a line end too."""

    regex = "(?s:.*)"


register_url_convertor("anything", _Anything())

About = Callable[[Site, str, Query], dict[str, Any]]
"""What answers about one run: by its folder and the query."""


ABOUT: dict[str, About] = {
    "": lambda site, path, query: site.show(path),
    "/tags": lambda site, path, query: site.series.tags(path),
    "/series": lambda site, path, query: site.series.series(path, query),
    "/system": lambda site, path, query: site.series.system(path, query),
    "/evals": lambda site, path, query: site.evals(path),
    "/sessions": lambda site, path, query: past(site.fs, path, query),
    "/samples": lambda site, path, query: site.content.samples(path, query),
    "/console": lambda site, path, query: site.content.console(path, query),
    "/media": lambda site, path, query: site.content.media(path, query),
    "/tables": lambda site, path, query: site.content.tables(path, query),
    "/table": lambda site, path, query: site.content.table(path, query),
    "/artifacts": lambda site, path, query: site.content.artifacts(path, query),
    "/environment": lambda site, path, query: site.content.environment(path, query),
}
"""Address below ``/api/runs/<project>/<run>`` -> who answers."""


def make_app(site: Site, *, token: str | None = None, cookie: str = "fsrun", limit: float = LIMIT) -> ASGIApp:
    """The viewer of a root as an ASGI application. ``token``: see ``guard``. ``limit``: seconds for an answer.

    It begins to scan when the server has started, and stops with it.
    """
    # Pools of a size: where a mount hangs, so many threads hang in it at most. What is in memory has its own.
    disk, memory = ThreadPoolExecutor(THREADS, "fsrun-disk"), ThreadPoolExecutor(4, "fsrun-memory")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        site.start()
        try:
            yield
        finally:
            site.close()
            for pool in (disk, memory):
                pool.shutdown(wait=False, cancel_futures=True)

    app = Starlette(
        routes=_routes(site, limit, disk, memory),
        exception_handlers={
            HTTPException: _on_http,
            FsrunError: _on_known,
            OSError: _on_system,
            TimeoutError: _on_slow,
            Exception: _on_fault,
        },
        lifespan=lifespan,
    )
    # Around all of it, and no middleware of it: what answers faults of routes stands outside of those.
    return Guard(app, token, cookie)


def _routes(site: Site, limit: float, disk: Executor, memory: Executor) -> list[Route]:
    turns, beside = Turns(disk), Turns(memory)

    def about(tail: str, who: About) -> Callable[[Request], Awaitable[Response]]:
        lane = _ALONE.get(tail)

        async def endpoint(request: Request) -> Response:
            query, run = _query(request), (request.path_params["project"], request.path_params["run"])

            def work() -> bytes:
                return encode(who(site, site.catalog.path(*run), query))

            key = (tail, run, request.scope.get("query_string", b""))
            made = turns.share(key, (lane, run), 1 if lane else _WIDTH, work)
            body = await asyncio.wait_for(made, limit)
            return await asyncio.get_running_loop().run_in_executor(memory, answer, request, body, JSON)

        return endpoint

    def of_files(work: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            lane = ("files", request.path_params["project"], request.path_params["run"])
            return await asyncio.wait_for(turns.share(object(), lane, _WIDTH, partial(work, request)), limit)

        return endpoint

    def threaded(pool: Executor, work: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            made = asyncio.get_running_loop().run_in_executor(pool, work, request)
            return await asyncio.wait_for(made, limit)

        return endpoint

    from_memory = partial(threaded, memory)

    def listing(request: Request) -> Response:
        project, run = request.path_params["project"], request.path_params["run"]
        found = files.listing(site.catalog.path(project, run), f"{project}/{run}", _query(request))
        return answer(request, encode(found), JSON)

    def runs(request: Request) -> Response:
        return answer(request, encode(site.catalog.since(_query(request).text("since"))), JSON)

    def file(request: Request) -> Response:
        path = site.catalog.path(request.path_params["project"], request.path_params["run"])
        return files.serve(request, path)

    async def of_host() -> dict[str, Any]:
        # It looks into the folder of this host's daemons: where that hangs, one thread does, however many ask.
        return await asyncio.wait_for(beside.share("info", "info", 1, site.info), limit)

    async def measured(request: Request) -> Response:
        has_daemon = (await of_host())["daemon"] is not None

        def work(request: Request) -> Response:
            return answer(request, metrics.render(site.catalog, daemon=has_daemon).encode(), metrics.KIND)

        return await from_memory(work)(request)

    async def info(request: Request) -> Response:
        return answer(request, encode(await of_host()), JSON)

    return [
        Route("/api/info", info),
        Route("/api/runs", from_memory(runs)),
        *(Route(_RUN + tail, about(tail, who)) for tail, who in ABOUT.items()),
        Route(_RUN + "/files", of_files(listing)),
        Route("/files/{project}/{run}/{path:anything}", of_files(file)),
        Route("/metrics", measured),
        Route("/{path:anything}", from_memory(pages.serve)),
    ]


def _query(request: Request) -> Query:
    text = request.scope.get("query_string", b"").decode("latin-1")
    try:
        return Query(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=1000))
    except ValueError:
        raise UsageError("the query is no UTF-8, or too long") from None


async def _on_http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        return await _on_fault(request, error)
    return refusal(error.status_code, f"{request.url.path[:200]}: {error.detail}")


async def _on_known(request: Request, error: Exception) -> Response:
    kinds = ((UsageError, 400), (NotFoundError, 404), (InvalidError, 422))
    return refusal(next((status for kind, status in kinds if isinstance(error, kind)), 500), str(error))


async def _on_system(request: Request, error: Exception) -> Response:
    missing = isinstance(error, OSError) and error.errno in _NOTHING_THERE
    told = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
    return refusal(404 if missing else 403 if isinstance(error, PermissionError) else 503, told)


async def _on_slow(request: Request, error: Exception) -> Response:
    # wait_for raises this; an OSError that is one has a number.
    if getattr(error, "errno", None) is not None:
        return await _on_system(request, error)
    return refusal(503, "the file system did not answer in time; it is asked again with the next request")


async def _on_fault(request: Request, error: Exception) -> Response:
    return refusal(500, f"fault in fsrun itself: {type(error).__name__}: {error}")
