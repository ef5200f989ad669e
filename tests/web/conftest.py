"""A root with one run, and a client of its viewer that speaks as a browser on this machine would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from fsrun.web.app import make_app
from fsrun.web.site import Site
from support import build
from support.build import RunFolder
from support.viewer import Viewer


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "runs"
    path.mkdir()
    return path


@pytest.fixture
def run(root: Path) -> RunFolder:
    made = build.run(root)
    made.session("main", 1, build.line(0, loss=0.5), build.line(1, loss=0.4))
    return made


@pytest.fixture
def viewer(root: Path) -> Iterator[Viewer]:
    """Makes a client of a viewer of the root; arguments go to ``make_app``."""
    with ExitStack() as stack:

        def make(*, base_url: str = "http://localhost:6070", site: Site | None = None, **options: Any) -> TestClient:
            app = make_app(site or Site(str(root)), **options)
            return stack.enter_context(TestClient(app, base_url=base_url, raise_server_exceptions=False))

        yield make
