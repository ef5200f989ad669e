"""Which line of /proc/self/mountinfo a path belongs to, and what it says."""

from __future__ import annotations

import pytest

from fsrun.core.mounts import Mount, find_mount

pytestmark = pytest.mark.unit

TABLE = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
30 22 0:45 / /mnt/team\040data rw,nosuid,relatime shared:9 - nfs4 filer:/ex\134port rw,vers=4.2,hard,acregmax=600
31 22 0:46 / /mnt/team\040data2 rw - tmpfs tmpfs rw
32 30 0:47 / /mnt/team\040data/sub ro,relatime - fuse.sshfs me@host: rw,user_id=0
33 32 0:48 / /mnt/team\040data/sub rw - xfs /dev/vdb rw
40 22 0:60 / /mnt rw - btrfs /dev/vdc rw
not a line
34 22 0:49 / /short - xfs
"""


def kind_at(path: str) -> str | None:
    mount = find_mount(TABLE, path)
    return mount and mount.kind


def test_a_path_is_on_the_deepest_mount_above_it_and_of_equal_ones_on_the_last() -> None:
    assert kind_at("/") == "ext4"
    assert kind_at("/home/other") == "ext4"
    assert kind_at("/mnt/other") == "btrfs"
    assert kind_at("/mnt/team data") == "nfs4"
    assert kind_at("/mnt/team data/runs/a") == "nfs4"
    assert kind_at("/mnt/team data/sub/x") == "xfs"


def test_a_name_that_only_begins_like_a_mount_point_is_not_below_it() -> None:
    assert kind_at("/mnt/team data2/x") == "tmpfs"
    assert kind_at("/mnt/team data3/x") == "btrfs"


def test_escapes_options_of_both_sides_and_their_values_are_read() -> None:
    assert find_mount(TABLE, "/mnt/team data/x") == Mount(
        "/mnt/team data",
        "nfs4",
        "filer:/ex\\port",
        {"rw": "", "vers": "4.2", "hard": "", "acregmax": "600", "nosuid": "", "relatime": ""},
    )


def test_where_nothing_fits_there_is_no_mount() -> None:
    assert find_mount("", "/x") is None
    assert find_mount("34 22 0:49 / /y rw - xfs", "/y") is None
