"""Files of a run over HTTP: which are given, as what, and in parts."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from fsrun.web import files as served
from support.build import RunFolder
from support.programs import until
from support.viewer import Viewer


@pytest.fixture
def files(root: Path, run: RunFolder) -> RunFolder:
    (root.parent / "secret.txt").write_text("secret")
    run.write("files/a.txt", "0123456789")
    return run


@pytest.mark.parametrize(
    "path",
    [
        "/files/speech/big/../../../secret.txt",
        "/files/speech/big/..%2f..%2f..%2fsecret.txt",
        "/files/speech/big/%2e%2e/%2e%2e/%2e%2e/secret.txt",
        "/files/speech/big/files/..%2F..%2F..%2F..%2Fsecret.txt",
        "/files/speech/big/%2fetc%2fpasswd",
        "/files/speech/big//etc/passwd",
        "/files/speech/big/files/a.txt%00.png",
        "/files/speech/big/files/%252e%252e/a.txt",
        "/files/speech/../../secret.txt",
        "/files/speech/%2e%2e/%2e%2e/secret.txt",
        "/files/%2e%2e/%2e%2e/secret.txt",
        "/files/../runs/speech/big/run.json",
        "/files/speech/big%2f..%2f..%2fsecret.txt",
        "/files/~/~/secret.txt",
        "/files/~/../secret.txt",
        "/files/speech/~/big/files/a.txt",
        "/files/.live/big/files/a.txt",
        "/../secret.txt",
        "/%2e%2e/%2e%2e/app.py",
        "/static/../app.py",
        "/vendor/..%2f..%2fapp.py",
        "/a%00.js",
        "/..%5c..%5capp.py",
    ],
)
def test_no_address_leads_out_of_a_run(viewer: Viewer, files: RunFolder, path: str) -> None:
    answer = viewer().get(path)
    assert answer.status_code in (400, 403, 404)
    assert "secret" not in answer.text.replace("secret.txt", "")
    assert "root:" not in answer.text
    assert set(answer.json()) == {"error"}


@pytest.mark.parametrize("path", ["../..", "..", "%2e%2e", "/etc", "files/../..", "a%00b", "files/./", "out", "out/x"])
def test_no_listing_leads_out_of_a_run(viewer: Viewer, files: RunFolder, path: str) -> None:
    (files.path / "out").symlink_to("../..")
    answer = viewer().get(f"/api/runs/speech/big/files?path={path}")
    assert answer.status_code in (403, 404)
    assert "secret" not in answer.text


def test_a_link_out_of_the_run_is_told_and_not_served(viewer: Viewer, root: Path, files: RunFolder) -> None:
    (files.path / "files" / "link.txt").symlink_to(root.parent / "secret.txt")
    client = viewer()
    answer = client.get("/files/speech/big/files/link.txt")
    assert (answer.status_code, answer.json()["error"]) == (
        403,
        "files/link.txt: a link on this path leads out of the folder of the run",
    )
    listed = client.get("/api/runs/speech/big/files?path=files").json()["files"]
    told = {file["name"]: (file["kind"], file["href"]) for file in listed}
    assert told == {"a.txt": ("file", "/files/speech/big/files/a.txt"), "link.txt": ("link", None)}


def test_a_project_that_is_a_link_is_no_project(viewer: Viewer, root: Path, files: RunFolder) -> None:
    (root / "other").symlink_to(root / "speech")
    (root / "speech" / "again").symlink_to("big")
    client = viewer()
    assert client.get("/api/runs/other/big").status_code == 404
    assert client.get("/api/runs/speech/again").status_code == 404


def test_a_file_is_given_whole_and_in_parts(viewer: Viewer, files: RunFolder) -> None:
    client = viewer()
    whole = client.get("/files/speech/big/files/a.txt")
    assert (whole.status_code, whole.content, whole.headers["content-length"]) == (200, b"0123456789", "10")
    parts = {
        "bytes=0-3": (206, b"0123", "bytes 0-3/10"),
        "bytes=7-": (206, b"789", "bytes 7-9/10"),
        "bytes=-4": (206, b"6789", "bytes 6-9/10"),
        "bytes=8-99": (206, b"89", "bytes 8-9/10"),
        "bytes=0-1,4-5": (200, b"0123456789", None),
        "lines=0-1": (200, b"0123456789", None),
        "bytes=-": (200, b"0123456789", None),
        "bytes=10-": (416, b"", "bytes */10"),
        "bytes=5-2": (416, b"", "bytes */10"),
        "bytes=-0": (416, b"", "bytes */10"),
    }
    for asked, (status, content, told) in parts.items():
        answer = client.get("/files/speech/big/files/a.txt", headers={"range": asked})
        assert (answer.status_code, answer.content, answer.headers.get("content-range")) == (status, content, told)


def test_a_part_of_a_file_that_changed_is_the_whole(viewer: Viewer, files: RunFolder) -> None:
    client = viewer()
    tag = client.get("/files/speech/big/files/a.txt").headers["etag"]
    asked = {"range": "bytes=0-1", "if-range": tag}
    assert client.get("/files/speech/big/files/a.txt", headers=asked).status_code == 206
    files.write("files/a.txt", "another text")
    answer = client.get("/files/speech/big/files/a.txt", headers=asked)
    assert (answer.status_code, answer.text) == (200, "another text")


def test_a_file_that_did_not_change_is_not_sent_again(viewer: Viewer, files: RunFolder) -> None:
    client = viewer()
    tag = client.get("/files/speech/big/files/a.txt").headers["etag"]
    answer = client.get("/files/speech/big/files/a.txt", headers={"if-none-match": tag})
    assert (answer.status_code, answer.content) == (304, b"")


def test_head_gives_the_facts_alone(viewer: Viewer, files: RunFolder) -> None:
    answer = viewer().head("/files/speech/big/files/a.txt")
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "10")


@pytest.mark.parametrize(
    ("name", "kind", "shown"),
    [
        ("a.png", "image/png", True),
        ("a.JPG", "image/jpeg", True),
        ("a.wav", "audio/wav", True),
        ("a.mp4", "video/mp4", True),
        ("output.main.1.log", "text/plain; charset=utf-8", True),
        ("a.json", "text/plain; charset=utf-8", True),
        ("a.svg", "application/octet-stream", False),
        ("a.html", "application/octet-stream", False),
        ("a.xhtml", "application/octet-stream", False),
        ("a.js", "application/octet-stream", False),
        ("a.css", "application/octet-stream", False),
        ("a.pdf", "application/octet-stream", False),
        ("a.xml", "application/octet-stream", False),
        ("a.swf", "application/octet-stream", False),
        ("png", "application/octet-stream", False),
        ("a.png.html", "application/octet-stream", False),
        ("a", "application/octet-stream", False),
    ],
)
def test_what_may_hold_a_script_is_a_download(
    viewer: Viewer, files: RunFolder, name: str, kind: str, shown: bool
) -> None:
    files.write(f"files/{name}", "<script>alert(1)</script>")
    answer = viewer().get(f"/files/speech/big/files/{name}")
    assert answer.headers["content-type"] == kind
    assert answer.headers["content-disposition"].startswith("inline;" if shown else "attachment;")
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none';" in policy
    assert policy.startswith("sandbox;") is not kind.startswith(("audio/", "video/"))
    assert "script" not in policy


def test_what_is_shown_can_be_downloaded(viewer: Viewer, files: RunFolder) -> None:
    answer = viewer().get("/files/speech/big/files/a.txt?download")
    assert answer.headers["content-disposition"] == "attachment; filename=\"a.txt\"; filename*=UTF-8''a.txt"


HOSTILE = [
    'a"b.txt',
    "ü.txt",
    "a;b.txt",
    "<img src=x>.txt",
    "a%2e.txt",
    "a?b#c.txt",
    "a\\b.txt",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_only_a_name(viewer: Viewer, files: RunFolder, name: str) -> None:
    files.write(f"files/{name}", "text")
    client = viewer()
    listed = client.get("/api/runs/speech/big/files?path=files").json()["files"]
    (found,) = [file for file in listed if file["name"] == name]
    answer = client.get(found["href"])
    assert (answer.status_code, answer.text) == (200, "text")
    assert "set-cookie" not in answer.headers
    assert answer.headers["content-disposition"].count('"') == 2


@pytest.mark.parametrize("name", ["a\r\nset-cookie: x=1.txt", "ends with one.txt\n", "\n"])
def test_a_name_with_a_line_end_is_given_and_adds_no_header(viewer: Viewer, files: RunFolder, name: str) -> None:
    files.write(f"files/{name}", "text")
    client = viewer()
    listed = client.get("/api/runs/speech/big/files?path=files").json()["files"]
    (found,) = (file for file in listed if "\n" in file["name"])
    answer = client.get(found["href"])
    assert (answer.status_code, answer.text) == (200, "text")
    assert "set-cookie" not in answer.headers
    assert client.get("/no%0Asuch.js").status_code == 404


def test_a_name_that_is_no_text_is_listed_and_given(viewer: Viewer, files: RunFolder) -> None:
    with open(os.fsencode(files.path / "files") + b"/\xff.txt", "wb") as file:
        file.write(b"bytes")
    client = viewer()
    listed = client.get("/api/runs/speech/big/files?path=files").json()["files"]
    assert [(file["name"], file["href"]) for file in listed][1] == ("?.txt", "/files/speech/big/files/%FF.txt")
    assert client.get("/files/speech/big/files/%FF.txt").content == b"bytes"


def test_a_folder_and_a_pipe_are_not_given(viewer: Viewer, files: RunFolder) -> None:
    os.mkfifo(files.path / "files" / "pipe")
    client = viewer()
    assert client.get("/files/speech/big/files").status_code == 404
    assert client.get("/files/speech/big/").status_code == 404
    assert client.get("/files/speech/big/files/pipe").status_code == 404
    assert client.get("/files/speech/big/files/none").status_code == 404


def test_a_long_folder_comes_in_parts(viewer: Viewer, files: RunFolder) -> None:
    for i in range(5):
        files.write(f"many/{i}", "")
    answer = viewer().get("/api/runs/speech/big/files?path=many&offset=2&limit=2").json()
    assert (answer["total"], answer["offset"], [file["name"] for file in answer["files"]]) == (5, 2, ["2", "3"])


def test_no_descriptor_stays_open(viewer: Viewer, files: RunFolder) -> None:
    files.write("files/big.bin", b"x" * 3_000_000)
    client = viewer()
    client.get("/files/speech/big/files/big.bin")
    before = len(os.listdir("/proc/self/fd"))
    for headers in ({}, {"range": "bytes=0-1"}, {"range": "bytes=9999999-"}):
        client.get("/files/speech/big/files/big.bin", headers=headers)
        client.head("/files/speech/big/files/big.bin", headers=headers)
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_answer_that_came_too_late_leaves_no_descriptor(
    viewer: Viewer, files: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = viewer(limit=0.2)
    client.get("/files/speech/big/files/a.txt")
    gate = threading.Event()
    late: list[None] = []
    serve = served.serve

    def slowly(*given: Any) -> Any:
        gate.wait(60)
        try:
            return serve(*given)
        finally:
            late.append(None)

    monkeypatch.setattr(served, "serve", slowly)

    def opened() -> int:
        gc.collect()
        return sum(os.path.realpath(f"/proc/self/fd/{name}").endswith("/a.txt") for name in os.listdir("/proc/self/fd"))

    try:
        assert [client.get("/files/speech/big/files/a.txt").status_code for _ in range(3)] == [503] * 3
    finally:
        gate.set()
    until(lambda: len(late) == 3)
    until(lambda: opened() == 0)
