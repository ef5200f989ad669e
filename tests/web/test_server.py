"""Sockets, addresses, and the daemon beside the page where it cannot be had."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from fsrun.core.errors import HeldError, UsageError
from fsrun.web import companion, server
from fsrun.web.companion import RESTARTS, Companion
from support.programs import until


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.7", False),
        ("localhost.example", False),
        ("", False),
    ],
)
def test_only_loopback_goes_without_a_token(host: str, local: bool) -> None:
    assert server.is_loopback(host) is local


@pytest.mark.parametrize(
    ("host", "token", "address"),
    [
        ("localhost", None, "http://localhost:6070/"),
        ("::1", None, "http://[::1]:6070/"),
        ("10.0.0.7", "abc", "http://10.0.0.7:6070/?token=abc"),
        ("0.0.0.0", "abc", f"http://{socket.gethostname()}:6070/?token=abc"),
        ("::", "abc", f"http://{socket.gethostname()}:6070/?token=abc"),
    ],
)
def test_the_address_can_be_opened(host: str, token: str | None, address: str) -> None:
    assert server.address_of(host, 6070, token) == address


def test_localhost_is_both_addresses_so_that_nobody_takes_the_other_one() -> None:
    found = server.bind("localhost", 0)
    try:
        names = [one.getsockname()[:2] for one in found]
        port = names[0][1]
        assert names == [("127.0.0.1", port), ("::1", port)][: 2 if has_ipv6() else 1]
        with pytest.raises(HeldError, match=f"port {port} of localhost is in use"):
            server.bind("localhost", port)
    finally:
        for one in found:
            one.close()


def test_a_port_that_is_taken_on_one_of_them_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two addresses of the loopback, as a machine without IPv6 has too.
    monkeypatch.setattr(server, "_BOTH", ("127.0.0.1", "127.0.0.2"))
    with socket.create_server(("127.0.0.2", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(HeldError, match="--port 0 for any that is free"):
            server.bind("localhost", port)
        # Nothing of it stays open.
        socket.create_server(("127.0.0.1", port)).close()


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(UsageError, match="--host is an address of this machine"):
        server.bind("203.0.113.1", 0)


def test_a_daemon_that_dies_again_and_again_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(companion, "_PAUSE", 0.0)
    said: list[str] = []
    # No such root: the daemon ends at once, each time.
    beside = Companion(str(tmp_path / "none"), said.append)
    beside.start()
    until(lambda: len(said) == RESTARTS + 1)
    beside.close()
    assert said[0] == "the daemon ended with exit 4 and is started again"
    assert (
        said[-1] == f"the daemon ended with exit 4 and is not started again; start it by: fsrun daemon {tmp_path}/none"
    )
    assert beside.pid is None


def test_a_daemon_that_cannot_be_started_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(companion.sys, "executable", str(tmp_path / "none"))
    said: list[str] = []
    beside = Companion(str(tmp_path), said.append)
    beside.start()
    until(lambda: bool(said))
    beside.close()
    assert "the daemon cannot be started" in said[0]


def test_a_daemon_of_somebody_else_that_ends_is_followed_by_the_own_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[dict[str, int] | None] = [{"pid": 7}]
    monkeypatch.setattr(companion, "_LOOK", 0.01)
    monkeypatch.setattr(companion, "daemon_of", lambda root: there[0])
    # Whatever is started stays until it is told to end.
    monkeypatch.setattr(
        companion.child, "start", lambda words, **rest: subprocess.Popen(["sleep", "600"], start_new_session=True)
    )
    said: list[str] = []
    beside = Companion(str(tmp_path), said.append)
    beside.start()
    try:
        until(lambda: len(said) == 1)
        assert (beside.pid, beside.is_kept) == (None, True)
        there[0] = None
        until(lambda: beside.pid is not None)
    finally:
        beside.close()
    assert said == [
        "a daemon runs on this host already (process 7); the page goes on with that one",
        "the daemon that ran on this host has ended; one is started beside the page",
    ]


def test_a_root_that_another_daemon_took_first_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = ["exit 3", "exit 3"]
    monkeypatch.setattr(companion, "_LOOK", 0.01)
    monkeypatch.setattr(companion, "daemon_of", lambda root: None)
    monkeypatch.setattr(
        companion.child,
        "start",
        lambda words, **rest: subprocess.Popen(
            ["sh", "-c", ends.pop() if ends else "exec sleep 600"], start_new_session=True
        ),
    )
    said: list[str] = []
    beside = Companion(str(tmp_path), said.append)
    beside.start()
    try:
        until(lambda: not ends and beside.pid is not None)
    finally:
        beside.close()
    assert said == []
