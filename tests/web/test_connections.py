"""Connections that say nothing: they end, keep nobody out, and the log stays short."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from fsrun.web import connections
from fsrun.web.app import make_app
from fsrun.web.connections import Connections, Told, raise_limit
from fsrun.web.server import Server, bind
from fsrun.web.site import Site
from support.build import RunFolder
from support.programs import PATIENCE, until

Serve = Callable[[Connections], int]
HALF = b"GET /api/info HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


@pytest.fixture
def serve(root: Path, run: RunFolder) -> Iterator[Serve]:
    """Starts a real server and returns its port."""
    with ExitStack() as stack:

        def start(wanted: Connections) -> int:
            began = threading.Event()
            sockets = bind("127.0.0.1", 0)
            port = int(sockets[0].getsockname()[1])
            server = Server(make_app(Site(str(root))), began.set, wanted)
            thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets)), daemon=True)
            thread.start()
            assert began.wait(PATIENCE)

            def end() -> None:
                server.should_exit = True
                thread.join(PATIENCE)

            stack.callback(end)
            return port

        yield start


def connect(port: int, data: bytes = HALF) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    made.sendall(data)
    return made


def ended(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("data", [b"", HALF], ids=["nothing", "half"])
def test_a_request_that_does_not_come_ends_the_connection(serve: Serve, data: bytes) -> None:
    port = serve(Connections(100, headers=0.05))
    with connect(port, data) as one:
        assert ended(one)


def test_a_byte_now_and_then_is_no_more_time(serve: Serve) -> None:
    port = serve(Connections(100, headers=0.2))
    with connect(port) as one:
        one.settimeout(0.02)
        tries = 0
        while tries < 5000:
            tries += 1
            try:
                one.sendall(b"x")
                if one.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert tries < 5000


def test_a_second_request_of_a_connection_has_to_come_too(serve: Serve) -> None:
    port = serve(Connections(100, headers=0.2))
    with connect(port, b"GET /api/info HTTP/1.1\r\nHost: localhost\r\n\r\n" + HALF) as one:
        found = b""
        while part := one.recv(65536):
            found += part
        assert found.startswith(b"HTTP/1.1 200")


def test_connections_that_say_nothing_keep_nobody_out(serve: Serve) -> None:
    port = serve(Connections(20, headers=PATIENCE))
    held = [connect(port) for _ in range(60)]
    try:
        assert httpx.get(f"http://localhost:{port}/api/info", timeout=PATIENCE).status_code == 200
        # Those that were silent longest are the ones that ended.
        assert all(ended(one) for one in held[:40])
    finally:
        for one in held:
            one.close()


def test_there_are_no_more_connections_than_may_be(serve: Serve) -> None:
    wanted = Connections(20, headers=PATIENCE)
    port = serve(wanted)
    held = [connect(port) for _ in range(60)]
    try:
        until(lambda: len(wanted.silent) == 20)
    finally:
        for one in held:
            one.close()


def test_of_descriptors_half_are_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(connections.resource, "setrlimit", lambda what, limits: asked.append(limits))
    for limits, most in (((256, 1024), 512), ((256, 256), 128), ((1024, 1 << 20), 1000), ((4, 4), 8)):
        monkeypatch.setattr(connections.resource, "getrlimit", lambda what, limits=limits: limits)
        assert raise_limit() == most
    assert asked == [(1024, 1024), (65_536, 1 << 20)]
    monkeypatch.setattr(connections.resource, "getrlimit", lambda what: (resource.RLIM_INFINITY,) * 2)
    assert raise_limit() == 1000


def test_descriptors_that_ran_out_are_one_line_a_minute() -> None:
    said: list[str] = []
    now = [0.0]
    told = Told(said.append, lambda: now[0])
    loop = asyncio.new_event_loop()
    try:
        for _ in range(1000):
            told(loop, {"message": "socket.accept()", "exception": OSError(errno.EMFILE, "Too many open files")})
        assert said == ["no connection can be taken for a moment: Too many open files; see ulimit -n"]
        now[0] = 61.0
        told(loop, {"message": "socket.accept()", "exception": OSError(errno.ENFILE, "Too many open files in system")})
        assert len(said) == 2
    finally:
        loop.close()
