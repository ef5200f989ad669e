"""Which mounts may make up a size, and that asking them does no harm elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsrun.disk import refresh as module
from fsrun.disk.refresh import fuse_mounted, refresh

MOUNTS = """\
24 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 24 0:47 / /mnt/a\\040b rw,nosuid shared:9 master:2 - fuse /srv rw,user_id=0
32 24 0:48 / /mnt/sshfs rw - fuse.sshfs host:/srv rw
33 24 0:49 / /mnt/nfs rw - nfs4 host:/ rw
34 24 0:50 / /sys/fs/fuse/connections rw - fusectl fusectl rw
"""


@pytest.mark.parametrize(("minor", "is_fuse"), [(47, True), (48, True), (49, False), (50, False), (51, False)])
def test_fuse_mounts_are_told_by_the_device_number(minor: int, is_fuse: bool) -> None:
    assert fuse_mounted(os.makedev(0, minor), MOUNTS) is is_fuse


def test_a_disk_is_no_fuse_mount() -> None:
    assert not fuse_mounted(os.makedev(254, 0), MOUNTS)


def test_asking_for_the_true_size_changes_nothing_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_is_fuse", lambda device: True)
    path = tmp_path / "log"
    path.write_bytes(b"12345")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        refresh(descriptor)
        assert os.read(descriptor, 10) == b"12345"
    finally:
        os.close(descriptor)


def test_a_descriptor_that_is_gone_is_no_error() -> None:
    refresh(-1)
