"""``core.cgroups``: limits of containers and Slurm steps, version 1 and 2, from the texts the kernel gives."""

from __future__ import annotations

from collections.abc import Mapping

from fsrun.core.cgroups import Usage, folders, groups, read_usage

HOST = 64 << 30


def usage(text: str, files: Mapping[str, str]) -> Usage:
    return read_usage(text, {f"/sys/fs/cgroup/{name}": content for name, content in files.items()}.get, HOST)


def test_the_groups_of_a_process_are_read_by_controller() -> None:
    text = "12:cpu,cpuacct:/a\n4:memory:/b:c\n1:name=systemd:/\n0::/x\nrubbish\n"
    assert groups(text) == {"cpu": "/a", "cpuacct": "/a", "memory": "/b:c", "name=systemd": "/", "": "/x"}


def test_folders_go_from_the_group_outwards_and_never_above_the_top() -> None:
    assert folders("/r", "/a/b") == ["/r/a/b", "/r/a", "/r"]
    assert folders("/r", "/../..") == ["/r"]


def test_version_2_with_a_limit_of_two_cores_and_eight_gigabytes() -> None:
    files = {
        "job/cpu.max": "200000 100000\n",
        "job/cpu.stat": "usage_usec 7500000\nuser_usec 1\n",
        "job/memory.max": f"{8 << 30}\n",
        "job/memory.current": f"{3 << 30}\n",
        "job/memory.stat": f"anon 5\ninactive_file {1 << 30}\n",
    }
    assert usage("0::/job\n", files) == Usage(2.0, 7.5, 8 << 30, 2 << 30)


def test_slurm_sets_the_limit_on_a_group_around_the_one_of_the_task() -> None:
    files = {
        "s/job_1/step_0/memory.max": "max\n",
        "s/job_1/memory.max": "1000\n",
        "s/job_1/memory.current": "900\n",
        "s/memory.max": "max\n",
        "s/job_1/step_0/cpu.max": "max 100000\n",
    }
    assert usage("0::/s/job_1/step_0\n", files) == Usage(None, None, 1000, 900)


def test_the_tightest_limit_counts_and_of_equal_ones_the_outer() -> None:
    files = {
        "a/b/memory.max": "1000",
        "a/b/memory.current": "1",
        "a/memory.max": "1000",
        "a/memory.current": "7",
        "memory.max": "5000",
        "a/b/cpu.max": "300000 100000",
        "a/cpu.max": "50000 100000",
    }
    assert usage("0::/a/b", files) == Usage(0.5, None, 1000, 7)


def test_version_1_beside_an_empty_version_2() -> None:
    text = "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n0::/\n"
    files = {
        "cpu/docker/x/cpu.cfs_quota_us": "150000",
        "cpu/docker/x/cpu.cfs_period_us": "100000",
        "cpuacct/docker/x/cpuacct.usage": "2500000000",
        "cpu/cpu.cfs_quota_us": "-1",
        "cpu/cpu.cfs_period_us": "100000",
        "memory/docker/x/memory.limit_in_bytes": "4000",
        "memory/docker/x/memory.usage_in_bytes": "3000",
        "memory/docker/x/memory.stat": "cache 1\ntotal_inactive_file 500\n",
        "memory/memory.limit_in_bytes": "9223372036854771712",
    }
    assert usage(text, files) == Usage(1.5, 2.5, 4000, 2500)


def test_a_container_that_sees_its_group_at_the_top_alone() -> None:
    files = {"memory/memory.limit_in_bytes": "4000", "memory/memory.usage_in_bytes": "1"}
    assert usage("4:memory:/docker/of-the-host\n", files) == Usage(None, None, 4000, 1)


def test_no_limit_and_no_files_are_nothing() -> None:
    assert usage("", {}) == Usage()
    assert usage("0::/\n", {"memory.max": "max", "cpu.max": "max 100000"}) == Usage()
    assert usage("0::/\n", {"memory.max": str(HOST), "cpu.max": "5"}) == Usage()
    assert usage("3:cpu:/\n", {"cpu/cpu.cfs_quota_us": "5"}) == Usage()


def test_a_limit_without_readable_use_stands_alone() -> None:
    assert usage("0::/\n", {"memory.max": "10", "cpu.max": "1 1", "cpu.stat": "x 1"}) == Usage(1.0, None, 10, None)
    text = "3:cpu:/\n"
    assert usage(text, {"cpu/cpu.cfs_quota_us": "5", "cpu/cpu.cfs_period_us": "5"}) == Usage(1.0, None, None, None)


def test_use_is_never_negative() -> None:
    files = {"memory.max": "10", "memory.current": "3", "memory.stat": "inactive_file 9"}
    assert usage("0::/", files).memory == 0


def test_numbers_past_any_machine_are_none() -> None:
    huge = "1" + "0" * 400
    assert usage("0::/x", {"x/cpu.max": f"{huge} 1", "x/memory.max": huge}) == Usage()
    files = {"x/cpu.max": "100000 100000", "x/cpu.stat": f"usage_usec {huge}"}
    assert usage("0::/x", files) == Usage(cpu_limit=1.0)
