"""Who is answered, and with which policies."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from fsrun.web import guard
from fsrun.web.app import make_app
from fsrun.web.guard import POLICY
from fsrun.web.site import Site
from support.viewer import Viewer

TOKEN = "a-token-of-length-20"


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:6070", "LOCALHOST:1", "127.0.0.1:6070", "[::1]:6070", "[::1]"]
)
def test_names_of_the_loopback_are_answered(viewer: Viewer, host: str) -> None:
    assert viewer().get("/api/info", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:6070", "0.0.0.0:6070", "10.0.0.7", "[::2]:6070"],
)
def test_a_name_that_was_made_to_point_here_is_not_answered(viewer: Viewer, host: str) -> None:
    answer = viewer().get("/api/info", headers={"host": host})
    assert answer.status_code == 403
    assert "version" not in answer.text


@pytest.mark.parametrize("host", ["", "localhost@evil", "localhost/evil", "localhost evil", "localhost:x", "a\\b"])
def test_what_is_no_host_is_refused(viewer: Viewer, host: str) -> None:
    assert viewer().get("/api/info", headers={"host": host}).status_code == 400


def test_two_hosts_are_refused(viewer: Viewer) -> None:
    headers = [("host", "localhost"), ("host", "evil.example")]
    assert viewer().get("/api/info", headers=headers).status_code == 400


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "MKCOL"])
@pytest.mark.parametrize("path", ["/", "/api/runs", "/files/a/b/c"])
def test_nothing_but_reading_is_answered(viewer: Viewer, method: str, path: str) -> None:
    answer = viewer().request(method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "path", ["/", "/api/info", "/api/runs", "/metrics", "/nothing", "/api/runs/a/b", "/files/a/b/c", "/%ff", "/a%00b"]
)
def test_every_answer_carries_the_policies(viewer: Viewer, path: str) -> None:
    client = viewer()
    for answer in (client.get(path), client.post(path), client.get(path, headers={"host": "evil.example"})):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers


def test_a_fault_carries_the_policies_too(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    client = viewer()
    monkeypatch.setattr("fsrun.web.site.Site.info", lambda site: 1 / 0)
    answer = client.get("/api/info")
    assert answer.status_code == 500
    assert answer.json() == {"error": "fault in fsrun itself: ZeroDivisionError: division by zero"}
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("site", "mode", "dest", "status"),
    [
        ("cross-site", "no-cors", "image", 403),
        ("cross-site", "cors", "empty", 403),
        ("same-site", "no-cors", "script", 403),
        ("cross-site", "navigate", "iframe", 403),
        ("cross-site", "navigate", "document", 200),
        ("same-origin", "cors", "empty", 200),
        ("none", "navigate", "document", 200),
    ],
)
def test_what_another_site_embeds_is_refused_and_its_links_work(
    viewer: Viewer, site: str, mode: str, dest: str, status: int
) -> None:
    headers = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": dest}
    assert viewer().get("/api/runs", headers=headers).status_code == status


def test_with_a_token_nothing_is_told_without_it(viewer: Viewer) -> None:
    client = viewer(token=TOKEN, base_url="http://node7:6070")
    for path in ("/", "/api/info", "/metrics", "/app.js", "/files/a/b/c", "/?token=", "/?token=wrong", "/?token=é"):
        answer = client.get(path, follow_redirects=False)
        assert answer.status_code == 401, path
        assert TOKEN not in answer.text + str(answer.headers)


def test_a_browser_without_the_token_is_asked_for_it(viewer: Viewer) -> None:
    client = viewer(token=TOKEN, base_url="http://node7:6070")
    browser = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    for path in ("/", "/?token=wrong", "/files/a/b/c", "/api/runs"):
        answer = client.get(path, headers=browser)
        assert (answer.status_code, answer.headers["content-type"]) == (401, "text/html; charset=utf-8")
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["cache-control"] == "no-store"
        assert 'type="password"' in answer.text
        assert TOKEN not in answer.text + str(answer.headers)
    assert client.get("/", headers={"accept": "application/json"}).json()["error"].startswith("a token is needed")
    asked = re.findall(r'(?:src|href)="([^"]*)"', answer.text)
    assert {client.get(path).status_code for path in asked} == {200}
    for path in ("/app.js", "/ask.js/", "//ask.js", "/ask.js/../app.js", "/run/page.js", "/%61pp.js"):
        assert client.get(f"http://node7:6070{path}").status_code in (401, 404), path


def test_who_is_asked_for_the_token_waits_for_no_file(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    client = viewer(token=TOKEN, base_url="http://node7:6070")
    monkeypatch.setattr(guard, "STATIC", "/none")
    assert 'type="password"' in client.get("/", headers={"accept": "text/html"}).text


def test_the_token_becomes_a_cookie_and_leaves_the_address(viewer: Viewer) -> None:
    client = viewer(token=TOKEN, base_url="http://node7:6070", cookie="fsrun-6070")
    answer = client.get(f"/?token={TOKEN}&a=1", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/?a=1")
    cookie = answer.headers["set-cookie"].lower()
    assert "fsrun-6070=" in cookie
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert client.get("/api/info").status_code == 200


def test_a_program_may_send_the_token_in_a_header(viewer: Viewer) -> None:
    client = viewer(token=TOKEN, base_url="http://node7:6070")
    assert client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert client.get("/metrics", headers={"authorization": f"Basic {TOKEN}"}).status_code == 401
    assert client.get("/metrics", headers={"authorization": "Bearer "}).status_code == 401


def test_a_redirection_stays_on_this_host(viewer: Viewer) -> None:
    client = viewer(token=TOKEN, base_url="http://node7:6070")
    for path in ("//evil.example/", "/\\evil.example/", "///evil.example"):
        answer = client.get(f"http://node7:6070{path}?token={TOKEN}", follow_redirects=False)
        location = answer.headers["location"]
        assert location.startswith("/")
        assert not location.startswith(("//", "/\\"))


def test_a_broken_cookie_is_no_cookie(viewer: Viewer) -> None:
    client = viewer(token=TOKEN, base_url="http://node7:6070")
    for cookie in ("fsrun", "fsrun=", "=;;=", 'fsrun="', "fsrun=wrong", "a" * 5000):
        assert client.get("/api/info", headers={"cookie": cookie}).status_code == 401


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://localhost/api/info", "localhost", 200),
        ("HTTP://127.0.0.1:6070/api/info?a=1", "evil.example", 200),
        ("http://evil.example/api/info", "localhost", 403),
        ("http://me@localhost/api/info", "localhost", 400),
        ("http:///api/info", "localhost", 400),
        ("http://localhost/api/none", "localhost", 404),
    ],
)
def test_a_target_with_a_host_counts_as_that_host(root: Path, target: str, host: str, status: int) -> None:
    path, _, query = target.partition("?")
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode()}
    scope |= {"headers": [(b"host", host.encode())], "scheme": "http", "http_version": "1.1", "root_path": ""}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    asyncio.run(make_app(Site(str(root)))(scope, receive, send))
    assert sent[0]["status"] == status
