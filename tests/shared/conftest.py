"""The shared folders that every test here runs on: bindfs with caches of 30 s, and real NFS, v4.2 and v3."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shared.site import SHARES, Site
from tools.nfsbed.bed import Bed, Unfit
from tools.nfsbed.bind import BindBed
from tools.nfsbed.nfs import NfsBed


def _up(bed: Bed) -> Iterator[Bed]:
    try:
        with bed:
            yield bed
    except Unfit as missing:
        pytest.skip(f"no {bed.kind} bed on this machine: {missing}")


@pytest.fixture(scope="session")
def bindfs() -> Iterator[Bed]:
    yield from _up(BindBed())


@pytest.fixture(scope="session")
def nfs() -> Iterator[Bed]:
    yield from _up(NfsBed())


@pytest.fixture(scope="session", params=list(SHARES))
def share(request: pytest.FixtureRequest) -> str:
    """Which shared folder; a test that needs a server names those that have one."""
    name: str = request.param
    return name


@pytest.fixture
def site(share: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Three hosts that see an empty folder; afterwards nothing of the test runs, and all hosts are up again."""
    mount, kind = SHARES[share]
    bed: Bed = request.getfixturevalue(kind)
    site = Site(bed, mount, tmp_path, sys.executable)
    try:
        yield site
    finally:
        site.settle()
