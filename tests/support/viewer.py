"""The type of the fixture ``viewer`` of tests/web: makes a client of a viewer."""

from __future__ import annotations

from collections.abc import Callable

from starlette.testclient import TestClient

Viewer = Callable[..., TestClient]
