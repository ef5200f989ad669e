"""The routes: what each answers, also where something is wrong."""

from __future__ import annotations

import gzip
import json
import os
import threading
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fsrun.core.errors import UsageError
from fsrun.disk.fs import LocalFileSystem
from fsrun.web import site as site_module
from fsrun.web.answers import encode
from fsrun.web.app import ABOUT
from fsrun.web.query import Query
from fsrun.web.recent import Recent
from fsrun.web.site import Site
from support import build
from support.build import RunFolder
from support.clock import FakeClock
from support.fs import FaultFS
from support.viewer import Viewer


def scanned(client: TestClient, cursor: str = "") -> dict[str, object]:
    """The answer of ``/api/runs`` once the first look has ended."""
    while (found := client.get(f"/api/runs?since={cursor}").json())["scanning"]:
        pass
    return dict(found)


def test_info_says_what_is_shown(viewer: Viewer, root: Path) -> None:
    found = viewer().get("/api/info").json()
    assert (found["root"], found["daemon"]) == (str(root), None)
    assert isinstance(found["charts"], bool)


def test_the_table_has_the_runs(viewer: Viewer, run: RunFolder) -> None:
    found = scanned(viewer())
    assert [row["key"] for row in found["runs"]] == ["speech/big"]  # type: ignore[attr-defined]


def test_one_run_is_the_object_of_show(viewer: Viewer, run: RunFolder) -> None:
    found = viewer().get("/api/runs/speech/big").json()
    assert (found["run"]["id"], found["run"]["status"]) == ("big", "finished")
    assert set(found) == {"run", "jobs", "queue", "best", "evals", "evaluation", "recorded", "newest", "environment"}


@pytest.mark.parametrize("tail", [*ABOUT, "/files"])
def test_a_run_that_is_not_there_is_not_found(viewer: Viewer, tail: str) -> None:
    for key in ("speech/none", "none/big", "speech/%2e%2e", "%2e%2e/runs", "~/~", "a%00/b"):
        answer = viewer().get(f"/api/runs/{key}{tail}")
        assert (answer.status_code, list(answer.json())) == (404, ["error"])


def test_an_address_of_nothing_is_not_found(viewer: Viewer) -> None:
    for path in ("/api", "/api/", "/api/runs/a", "/api/nothing", "/index", "/favicon.icoo", "/app.py", "/__init__.py"):
        assert viewer().get(path).status_code == 404, path


def test_the_page_is_served_and_not_sent_twice(viewer: Viewer) -> None:
    client = viewer()
    answer = client.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "<script>" not in answer.text
    again = client.get("/", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_answers_are_zipped_for_those_who_take_it(viewer: Viewer, root: Path) -> None:
    for i in range(30):
        build.run(root, f"run-{i}").session("main", 1)
    client = viewer()
    scanned(client)
    with client.stream("GET", "/api/runs", headers={"accept-encoding": "gzip"}) as answer:
        assert answer.headers["content-encoding"] == "gzip"
        assert len(json.loads(gzip.decompress(b"".join(answer.iter_raw())))["runs"]) == 30
    assert "content-encoding" not in client.get("/api/runs", headers={"accept-encoding": ""}).headers


def test_a_mount_that_hangs_holds_up_nobody_else(viewer: Viewer, root: Path, run: RunFolder) -> None:
    fs = FaultFS(LocalFileSystem())
    client = viewer(site=Site(str(root), fs), limit=0.2)
    scanned(client)
    gate = fs.hang("names", match="speech/big")
    try:
        answer = client.get("/api/runs/speech/big/evals")
        assert (answer.status_code, "in time" in answer.json()["error"]) == (503, True)
        assert client.get("/api/info").status_code == 200
        assert [row["key"] for row in client.get("/api/runs").json()["runs"]] == ["speech/big"]
        assert client.get("/metrics").status_code == 200
    finally:
        gate.set()


def test_a_runtime_folder_that_hangs_holds_up_nobody_else(
    viewer: Viewer, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = viewer(limit=0.2)
    scanned(client)
    gate = threading.Event()
    monkeypatch.setattr(site_module, "daemon_of", lambda root: gate.wait(60) and None)
    try:
        # More often than there are threads for what is in memory.
        for address in ("/api/info", "/metrics") * 4:
            assert client.get(address).status_code == 503
        assert client.get("/").status_code == 200
        assert [row["key"] for row in client.get("/api/runs").json()["runs"]] == ["speech/big"]
    finally:
        gate.set()


def test_a_folder_that_may_not_be_read_is_said_so(viewer: Viewer, root: Path, run: RunFolder) -> None:
    fs = FaultFS(LocalFileSystem())
    client = viewer(site=Site(str(root), fs))
    scanned(client)
    fs.fail("names", match="speech/big", error=13, times=1000)
    answer = client.get("/api/runs/speech/big/evals")
    assert (answer.status_code, "Permission denied" in answer.json()["error"]) == (403, True)


def test_a_query_that_cannot_be_is_refused_by_name(viewer: Viewer, run: RunFolder) -> None:
    client = viewer()
    answer = client.get("/api/runs/speech/big/files?offset=-1")
    assert (answer.status_code, answer.json()["error"]) == (400, "offset='-1' is no integer from 0 to 1000000000")
    assert client.get("/api/runs/speech/big/files?path=%ff").status_code == 400


def test_a_query_gives_what_it_holds() -> None:
    query = Query([("tag", "a"), ("tag", "b"), ("n", "5"), ("x", "1e3"), ("empty", ""), ("nan", "nan")])
    assert (query.text("tag"), query.texts("tag"), query.texts("none")) == ("b", ["a", "b"], [])
    assert (query.text("empty"), query.text("none", "default")) == (None, "default")
    assert (query.integer("n", least=0, most=9), query.integer("none", 7, least=0, most=9)) == (5, 7)
    assert (query.number("x"), query.number("none")) == (1000.0, None)
    assert query.choice("none", ("step", "time"), "step") == "step"
    for refused in (
        lambda: query.integer("x", least=0, most=9),
        lambda: query.number("nan"),
        lambda: query.choice("tag", ("step",), "step"),
    ):
        with pytest.raises(UsageError, match="is no"):
            refused()


def test_every_value_becomes_json() -> None:
    assert encode({"a": float("nan"), "b": [1, "ü"]}) == '{"a":null,"b":[1,"ü"]}'.encode()
    assert json.loads(encode({"name": os.fsdecode(b"\xff"), "big": 2**70})) == {"name": "?", "big": float(2**70)}


def test_an_answer_is_shared_for_a_moment_and_made_anew_after_it() -> None:
    clock, made = FakeClock(), []

    def make() -> int:
        clock.advance(1.0)
        made.append(1)
        return len(made)

    recent = Recent(clock)
    assert [recent.get("a", make), recent.get("a", make)] == [1, 1]
    clock.advance(3.9)
    assert recent.get("a", make) == 1
    clock.advance(0.2)
    assert recent.get("a", make) == 2
    assert recent.get("b", make) == 3


def test_what_fails_is_not_kept() -> None:
    recent = Recent(FakeClock())
    with pytest.raises(ZeroDivisionError):
        recent.get("a", lambda: 1 / 0)
    assert recent.get("a", lambda: 5) == 5
