"""Engines and router as processes of this host: their ports, their environment, and how long their start takes.

Does: chooses a port, starts, waits until it answers as what it is meant to be. Leaves to others: command lines
(``settings``), keeping and ending (``processes``).
"""

from __future__ import annotations

import asyncio
import getpass
import os
import random
import socket
import tempfile
from collections.abc import Mapping
from contextlib import closing, suppress

from fsrun.adapters.evaluation import EvaluationError
from fsrun.adapters.fleet.processes import Processes, telling
from fsrun.adapters.http import CallError, shown
from fsrun.adapters.sglang_api import Engine, Router
from fsrun.core.errors import UsageError
from fsrun.core.redaction import redact_text

PORTS = (20000, 32000)
"""Where ports are taken from, below those that the system gives to connections: an engine binds its own late."""
ROUTER = "router"
"""Name of the router among the processes."""
CLASHES = 3
"""Tries with another port where somebody else took it first."""
_TAKEN = ("address already in use", "Address already in use", "EADDRINUSE", "port is already", "is not available")
_USAGE = 2
_POLL = 0.25
_CALL_LIMIT = 5.0


class Ended(EvaluationError):
    """The process ended before it was up."""


class Clash(Ended):
    """It ended because its port was taken."""


def free_port() -> int:
    """A port that is free now, for a process that binds it later."""
    for port in random.sample(range(*PORTS), 200):
        if is_free(port):
            return port
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether nobody listens on a port of this host."""
    for host in ("127.0.0.1", ""):
        with closing(socket.socket()) as found:
            # Connections that just ended on it keep nobody from listening.
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                found.bind((host, port))
            except OSError:
                return False
    return True


def environment(own: Mapping[str, str], current: Mapping[str, str], devices: str | None = None) -> dict[str, str]:
    """Variables of an engine or router, beside those of this process; ``own``: from the settings."""
    found: dict[str, str] = {}
    # An engine's own warm-up calls itself, and must not do so through the proxy of the shell.
    for name in ("NO_PROXY", "no_proxy"):
        found[name] = ",".join(filter(None, (current.get(name), "127.0.0.1", "localhost")))
    # Its TMPDIR is one of its own and goes with it; what it compiled is to stay.
    if "TORCHINDUCTOR_CACHE_DIR" not in current:
        with suppress(OSError, KeyError, ImportError):
            found["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}")
    if devices is not None:
        found["CUDA_VISIBLE_DEVICES"] = devices
    return found | dict(own)


async def engine_up(processes: Processes, name: str, engine: Engine, limit: float) -> str | None:
    """Wait until an engine of ours takes requests; returns its weight version. Raises ``EvaluationError``."""
    loop = asyncio.get_running_loop()
    until = loop.time() + limit
    while True:
        _check(processes, name)
        try:
            said = (await engine.model_info(_CALL_LIMIT)).get("weight_version")
            if await engine.ready():
                return said if isinstance(said, str) else None
        except CallError as error:
            if error.kind == "denied":
                raise EvaluationError(error.reason) from error
        if loop.time() >= until:
            raise EvaluationError(f"it did not take requests within {limit:g} s; its log: {processes.log_of(name)}")
        await asyncio.sleep(_POLL)


async def answers(engine: Engine, limit: float) -> None:
    """Wait until a given engine takes requests; raises ``EvaluationError`` after ``limit`` seconds."""
    loop = asyncio.get_running_loop()
    until = loop.time() + limit
    reason = "it is loading (503)"
    while True:
        try:
            if await engine.ready():
                return
        except CallError as error:
            reason = error.reason
        if loop.time() >= until:
            raise EvaluationError(f"{shown(engine.url)} takes no requests: {reason}")
        await asyncio.sleep(_POLL)


async def router_up(processes: Processes, router: Router, limit: float) -> None:
    """Wait until our router answers; raises ``EvaluationError``."""
    loop = asyncio.get_running_loop()
    until = loop.time() + limit
    while True:
        _check(processes, ROUTER)
        try:
            await router.up()
            # Somebody else's may answer on the port while ours is ending for want of it.
            await asyncio.sleep(_POLL)
            _check(processes, ROUTER)
            return
        except CallError:
            pass
        if loop.time() >= until:
            raise EvaluationError(f"the router did not answer within {limit:g} s; its log: {processes.log_of(ROUTER)}")
        await asyncio.sleep(_POLL)


def _check(processes: Processes, name: str) -> None:
    """Raise where the process ended; ``UsageError`` where it cannot take the settings that it was given."""
    ending = processes.endings.get(name)
    if ending is None:
        if name not in processes.running:
            raise Ended("its start was given up")
        return
    if ending.status == _USAGE and "error:" in ending.tail:
        # No checkpoint is to blame, and none would fare better.
        said = redact_text(telling(ending.tail))
        raise UsageError(f"{name} refuses its command line: {said} (log: {ending.log})")
    kind = Clash if any(word in ending.tail for word in _TAKEN) else Ended
    raise kind(f"it ended while it started: {ending.reason} (log: {ending.log})")


async def join(router: Router, url: str, limit: float, api_key: str | None = None) -> None:
    """Have the router send to an engine, and wait until it does; raises ``CallError`` or ``EvaluationError``.

    ``api_key``: what the engine asks for, also of the router, which looks at the engine before it takes it.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + limit
    asked: str | None = None
    while True:
        workers = {worker.url.rstrip("/"): worker for worker in await router.workers()}
        there = workers.get(url)
        if there is not None and there.healthy:
            return
        if asked is None:
            if there is not None:
                # As it was before: it may be marked unhealthy, or be known by another model's name.
                await router.remove(there.id)
            try:
                asked = await router.add(url, None if api_key is None else {"api_key": api_key})
            except CallError as error:
                if error.status != 409:
                    raise
        elif there is None:
            worker = await router.worker(asked)
            if worker is None or worker.state == "failed":
                # Forgotten, or failed: ask once more, as long as there is time.
                asked = None
        if loop.time() >= until:
            raise EvaluationError(f"the router {shown(router.url)} does not take {shown(url)} within {limit:g} s")
        await asyncio.sleep(_POLL)


async def leave(router: Router, urls: set[str]) -> None:
    """Take engines out of the router; ``CallError`` where it cannot be asked."""
    for worker in await router.workers():
        if worker.url.rstrip("/") in urls:
            await router.remove(worker.id)
