"""The chart library comes into the package from what was pinned, or not at all."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from fsrun.web.site import CHARTS, STATIC

ROOT = Path(__file__).parents[2]


@pytest.fixture
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "tools" / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def package(build: ModuleType, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]) -> None:
    """Let npm give a package of these files, and let that be what was pinned."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in files.items():
            facts = tarfile.TarInfo(name)
            facts.size = len(data)
            archive.addfile(facts, io.BytesIO(data))
    monkeypatch.setattr(build, "_download", packed.getvalue)
    monkeypatch.setattr(build, "INTEGRITY", base64.b64encode(hashlib.sha512(packed.getvalue()).digest()).decode())


def files_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_the_folder_is_where_the_page_looks(build: ModuleType) -> None:
    assert str(ROOT / build.FOLDER / "uPlot.esm.js") == f"{STATIC}/{CHARTS}"
    assert "/fsrun/web/static/vendor/" in (ROOT / ".gitignore").read_text().splitlines()


def test_what_was_pinned_is_unpacked_and_nothing_else(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = hashlib.sha256(b"charts").hexdigest()
    monkeypatch.setattr(build, "FILES", {"a.js": ("package/dist/a.js", digest)})
    package(build, monkeypatch, {"package/dist/a.js": b"charts", "package/install.sh": b"x", "../out": b"x"})
    assert build.bring(tmp_path, pytest.fail)
    assert files_of(tmp_path) == ["a.js"]
    monkeypatch.setattr(build, "_download", lambda: pytest.fail("what is there is fetched again"))
    assert build.bring(tmp_path, pytest.fail)


def test_another_package_is_refused(build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = build.INTEGRITY
    package(build, monkeypatch, {"package/dist/uPlot.esm.js": b"evil"})
    told: list[str] = []
    assert not build.bring(tmp_path, told.append)
    assert "uPlot.esm.js of uplot@1.6.32 is not what was pinned" in told[0]
    monkeypatch.setattr(build, "INTEGRITY", pinned)
    assert not build.bring(tmp_path, told.append)
    assert "what npm gave is not the uplot@1.6.32 that was pinned" in told[1]
    assert files_of(tmp_path) == []


def test_without_npm_the_build_goes_on_and_says_how_to_get_it(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    told: list[str] = []
    assert not build.bring(tmp_path, told.append)
    assert told == ["the viewer gets no charts: npm is not installed. Later: apt-get install npm; sh tools/setup web"]


def test_an_npm_that_fails_is_quoted(build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho 'npm error network is down' >&2\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    told: list[str] = []
    assert not build.bring(tmp_path, told.append)
    assert "could not fetch uplot@1.6.32: npm error network is down" in told[0]
