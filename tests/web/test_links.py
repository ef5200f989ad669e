"""Links that lead out of a run: no route shows what they lead to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fsrun.web.site import Site
from support import build
from support.build import RunFolder
from support.viewer import Viewer

SECRET = "hunter2"
ROUTES = (
    "",
    "/tags",
    "/series?tag=loss",
    "/system",
    "/evals",
    "/sessions",
    "/samples",
    "/console",
    "/media",
    "/tables",
    "/table?name=t",
    "/artifacts",
    "/artifacts?name=a&version=1",
    "/environment",
    "/files",
)


@pytest.fixture
def whole(run: RunFolder) -> RunFolder:
    """A run of which every file that is read says the secret."""
    run.lock("main", 1, config={"key": SECRET}, name=SECRET)
    run.write("scalars/main.1.jsonl", build.line(0, {SECRET: 0.5}))
    run.end("main", 1, summary={SECRET: 1.0})
    run.outcome("a.pt", step=1, scores={SECRET: 1.0})
    run.write("files/main.1.environment.json", {"protocol": "1.0", "host": SECRET})
    run.write("files/output.main.1.log", SECRET)
    run.write("best.json", {"protocol": "1.0", "tag": SECRET, "mode": "max", "keep": 1})
    run.write("system/main/main.1.jsonl", json.dumps({"time": 1.0, SECRET: 1.0}) + "\n")
    return run


def _told(viewer: Viewer) -> str:
    client = viewer()
    told = [client.get(f"/api/runs/speech/big{route}").text for route in ROUTES]
    return "".join([client.get("/api/runs").text, client.get("/metrics").text, *told])


@pytest.mark.parametrize(
    "name",
    [
        "jobs/main.1.lock",
        "jobs/main.1.end",
        "scalars",
        "scalars/main.1.jsonl",
        "evals",
        "evals/a.pt.1.json",
        "files",
        "files/main.1.environment.json",
        "files/output.main.1.log",
        "best.json",
        "system",
        "system/main",
    ],
)
@pytest.mark.parametrize("absolute", [False, True])
def test_no_link_out_of_a_run_shows_what_it_leads_to(
    viewer: Viewer, root: Path, whole: RunFolder, tmp_path: Path, name: str, *, absolute: bool
) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole.path, out)
    shutil.rmtree(whole.path)
    made = RunFolder(whole.path)
    made.session("main", 1, build.line(0, loss=0.5), ended=None if name.endswith("end") else "finished")
    there = made.path / name
    if there.is_dir():
        shutil.rmtree(there)
    there.unlink(missing_ok=True)
    there.parent.mkdir(exist_ok=True)
    up = "../" * (len(Path(name).parts) + 2)
    there.symlink_to(out / name if absolute else f"{up}out/{name}")
    assert there.exists()
    assert SECRET not in _told(viewer)


def test_a_link_to_another_run_leads_out_as_well(viewer: Viewer, root: Path, whole: RunFolder) -> None:
    other = build.run(root, "other")
    other.session("main", 1, build.line(0, loss=0.5))
    (other.path / "files" / "main.1.environment.json").symlink_to("../../big/files/main.1.environment.json")
    client = viewer()
    assert client.get("/api/runs/speech/big/environment").json()["environment"]["host"] == SECRET
    assert client.get("/api/runs/speech/other/environment").json()["environment"] == {}


def test_links_inside_a_run_are_followed(viewer: Viewer, whole: RunFolder) -> None:
    (whole.path / "kept").mkdir()
    for name in ("scalars", "evals"):
        (whole.path / name).rename(whole.path / "kept" / name)
    (whole.path / "scalars").symlink_to("kept/scalars")
    (whole.path / "evals").symlink_to(whole.path / "kept" / "evals")
    client = viewer()
    assert [tag["tag"] for tag in client.get("/api/runs/speech/big/tags").json()["tags"]] == [SECRET]
    assert client.get("/api/runs/speech/big/evals").json()["total"] == 1


def test_a_root_that_is_reached_by_a_link_is_shown(viewer: Viewer, root: Path, whole: RunFolder) -> None:
    (root.parent / "link").symlink_to(root)
    client = viewer(site=Site(str(root.parent / "link")))
    assert client.get("/api/runs/speech/big/environment").json()["environment"]["host"] == SECRET
