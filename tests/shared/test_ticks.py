"""A change in the same tick of the server's clock as the one before it: NFS 3 sees one time stamp for both."""

from __future__ import annotations

import sys

import pytest

from tests.shared.site import REPO, Site
from tools.nfsbed.remote import PATH

ROUNDS = 25
CODE = """
import os, sys, time
from fsrun.disk.fs import LocalFileSystem
here, there, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
fs, late = LocalFileSystem(), []
for n in range(rounds):
    os.mkdir(f"{here}/{n}")
    os.listdir(f"{there}/{n}")
    open(f"{there}/{n}/temporary", "w").close()
    fs.names(f"{here}/{n}")
    os.rename(f"{there}/{n}/temporary", f"{there}/{n}/record")
    time.sleep(0.05)
    if fs.names(f"{here}/{n}") != ["record"] or fs.scan(f"{here}/{n}") != [("record", False)]:
        late.append(n)
print("late", late)
"""


@pytest.mark.parametrize("share", ["nfs4.2", "nfs3"], indirect=True, scope="session")
def test_a_change_in_the_tick_of_a_listing_is_in_the_next_listing(site: Site) -> None:
    mount, _, name = site.root.rpartition("/")
    other = {"/run/v4": "/run/v3", "/run/v3": "/run/v4"}[mount]
    words = [sys.executable, "-c", CODE, site.root, f"{other}/{name}", str(ROUNDS)]
    process = site.bed.hosts["A"].start(words, {"PATH": PATH, "PYTHONPATH": str(REPO)}, "/run/tmp")
    try:
        assert process.wait(120) == 0, process.story()
        assert process.out == ["late []"]
    finally:
        process.close()
