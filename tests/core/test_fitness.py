"""What was tried in a folder, judged: fit, works with a limit, unfit; each with the reason and what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fsrun.core.fitness import (
    NEEDED,
    WISHED,
    Facts,
    Finding,
    Hold,
    Latency,
    Sight,
    Trial,
    Tried,
    judge,
    judge_mount,
    overlaps,
    verdict,
)
from fsrun.core.mounts import Mount

pytestmark = pytest.mark.unit

NFS = Mount("/mnt", "nfs4", "filer:/x", {"rw": "", "hard": ""})
FIT = Facts(
    "/mnt/runs",
    mount=NFS,
    tried={name: Tried(True) for name in (*NEEDED, *WISHED)},
    free_bytes=1 << 40,
    free_inodes=1 << 20,
    clock_ahead=-0.3,
    latencies={"beat": Latency(0.002, 0.05)},
    sights=(Sight("listing", "process", False, 0.1, 5), Sight("listing", "process", True, 0.1, 5)),
    trial=Trial((Hold(1, "a", 0.0, 1.0), Hold(2, "b", 1.0, 2.0))),
)


def of(facts: Facts, severity: str) -> list[Finding]:
    return [finding for finding in judge(facts) if finding.severity == severity]


def test_a_usual_nfs_mount_is_fit_in_every_respect() -> None:
    findings = judge(FIT)
    assert verdict(findings) == "fit"
    assert {finding.what for finding in findings} >= {"mount", *NEEDED, *WISHED, "space", "inodes", "clock", "beat"}


def test_the_verdict_is_the_worst_finding_and_nothing_tried_is_fit() -> None:
    fit, limit, unfit = (Finding("x", severity, "") for severity in ("fit", "limit", "unfit"))  # type: ignore[arg-type]
    assert verdict([]) == "fit"
    assert verdict([fit, limit, fit]) == "limit"
    assert verdict([limit, unfit, fit]) == "unfit"


@pytest.mark.parametrize("name", NEEDED)
def test_a_folder_that_cannot_do_what_runs_are_made_of_is_unfit(name: str) -> None:
    (finding,) = of(replace(FIT, tried={name: Tried(False, "Operation not supported")}), "unfit")
    assert finding.what == name
    assert "Operation not supported" in finding.found
    assert finding.remedy


@pytest.mark.parametrize("name", WISHED)
def test_what_runs_can_do_without_is_a_limit_with_a_remedy(name: str) -> None:
    for why in ("Operation not permitted", ""):
        facts = replace(FIT, tried={name: Tried(False, why)})
        assert of(facts, "unfit") == []
        (finding,) = of(facts, "limit")
        assert why in finding.found
        assert finding.remedy


def test_an_operation_that_does_not_answer_makes_a_folder_unfit() -> None:
    assert of(replace(FIT, tried={"link": Tried(None)}), "unfit")[0].what == "link"
    (finding,) = of(replace(FIT, hung="rename"), "unfit")
    assert finding.found.startswith("rename did not answer")


@pytest.mark.parametrize(
    ("options", "severity", "word"),
    [
        ({"nocto": ""}, "unfit", "nocto"),
        ({"ro": ""}, "unfit", "read-only"),
        ({"soft": ""}, "unfit", "soft"),
        ({"softerr": ""}, "unfit", "soft"),
        ({"actimeo": "600"}, "limit", "actimeo=600"),
        ({"acregmax": "61", "acdirmax": "60"}, "limit", "acregmax=61:"),
        ({"noac": ""}, "fit", "noac"),
        ({"lookupcache": "none"}, "fit", "lookupcache=none"),
        ({"local_lock": "all"}, "fit", "local_lock=all"),
    ],
)
def test_options_of_an_nfs_mount_are_judged(options: dict[str, str], severity: str, word: str) -> None:
    _, finding = judge_mount(replace(NFS, options=options))
    assert finding.severity == severity
    assert word in finding.found


@pytest.mark.parametrize(
    "options", [{"acregmax": "60"}, {"acregmax": "x"}, {"local_lock": "none"}, {"lookupcache": "all"}]
)
def test_options_that_are_usual_are_not_mentioned(options: dict[str, str]) -> None:
    assert len(list(judge_mount(replace(NFS, options=options)))) == 1


@pytest.mark.parametrize(
    ("kind", "severity", "word"),
    [
        ("ext4", "fit", "this host alone"),
        ("nfs", "fit", "filer"),
        ("ceph", "fit", "filer"),
        ("tmpfs", "limit", "in memory"),
        ("overlay", "limit", "container"),
        ("fuse", "limit", "FUSE"),
        ("fuse.sshfs", "limit", "FUSE"),
        ("fuse.s3fs", "unfit", "object store"),
        ("fuse.gcsfuse", "unfit", "object store"),
        ("fuse.mountpoint-s3", "unfit", "object store"),
        ("cifs", "limit", "not a kind"),
        ("vfat", "limit", "not a kind"),
    ],
)
def test_kinds_of_mounts_are_told_apart(kind: str, severity: str, word: str) -> None:
    finding = next(judge_mount(replace(NFS, kind=kind)))
    assert finding.severity == severity
    assert word in finding.found


def test_both_mounts_are_judged_and_an_unknown_one_is_said_to_be_unknown() -> None:
    facts = replace(FIT, also=replace(NFS, options={"nocto": ""}))
    assert [finding.what for finding in of(facts, "unfit")] == ["other mount"]
    assert "does not say" in judge(Facts("/x"))[0].found


def test_little_space_few_inodes_and_a_wrong_clock_are_limits() -> None:
    facts = replace(FIT, free_bytes=1 << 20, free_inodes=3, clock_ahead=90.0)
    assert [finding.what for finding in of(facts, "limit")] == ["space", "inodes", "clock"]
    assert "90 s ahead" in of(facts, "limit")[2].found
    assert "behind" in of(replace(FIT, clock_ahead=-90.0), "limit")[0].found


def test_slow_operations_ask_for_a_longer_timeout_and_very_slow_ones_are_unfit() -> None:
    (slow,) = of(replace(FIT, latencies={"look": Latency(0.5, 2.0)}), "limit")
    assert "timeout=60" in slow.remedy
    (worse,) = of(replace(FIT, latencies={"look": Latency(6.0, 9.0)}), "unfit")
    assert "timeout=270" in worse.remedy


def test_a_change_that_a_fresh_look_sees_late_is_judged_by_what_depends_on_it() -> None:
    def severity(what: str, seconds: float | None) -> str:
        return verdict(judge(Facts("/x", sights=(Sight(what, "mount", True, seconds, 5),))))  # type: ignore[arg-type]

    for what in ("listing", "absent name", "replaced file", "grown file"):
        assert severity(what, 1.9) == "fit"
    assert [severity("listing", s) for s in (3.0, None)] == ["unfit", "unfit"]
    assert [severity("grown file", s) for s in (3.0, None)] == ["limit", "unfit"]
    assert [severity("replaced file", s) for s in (3.0, None)] == ["limit", "limit"]
    assert [severity("absent name", s) for s in (3.0, None)] == ["limit", "limit"]


def test_how_late_a_plain_look_is_is_said_beside_the_fresh_one_where_it_matters() -> None:
    def found(plain: float | None) -> str:
        sights = (Sight("absent name", "mount", False, plain, 5), Sight("absent name", "mount", True, 0.1, 5))
        return judge(Facts("/x", sights=sights))[-1].found

    assert "without opening the folder first: more than 5 s" in found(None)
    assert "4.0 s" in found(4.0)
    assert "without" not in found(0.2)


def test_two_holds_at_one_moment_or_of_one_number_are_found() -> None:
    one, two, late = Hold(1, "a", 0.0, 2.0), Hold(2, "b", 1.0, 1.5), Hold(3, "c", 1.9, 3.0)
    assert overlaps([late, two, one]) == [(one, two), (one, late)]
    assert overlaps([one, Hold(2, "b", 2.0, 3.0)]) == []
    again = Hold(1, "b", 5.0, 6.0)
    assert overlaps([one, again]) == [(one, again)]


def test_an_overlap_a_process_that_failed_and_too_few_processes_are_told() -> None:
    both = Trial((Hold(1, "a", 0.0, 2.0), Hold(2, "b", 1.0, 3.0)))
    assert "session 1 (a) and 2 (b)" in of(replace(FIT, trial=both), "unfit")[0].found
    failed = Trial((Hold(1, "a", 0.0, 2.0),), ("no rename",))
    assert "no rename" in of(replace(FIT, trial=failed), "unfit")[0].found
    alone = Trial((Hold(1, "a", 0.0, 2.0),))
    assert of(replace(FIT, trial=alone), "limit")[0].what == "exclusion"


def test_options_of_nfs_mean_nothing_elsewhere_and_read_only_does() -> None:
    local = replace(NFS, kind="ext4", options={"soft": "", "nocto": ""})
    assert [finding.severity for finding in judge_mount(local)] == ["fit"]
    assert [finding.severity for finding in judge_mount(replace(local, options={"ro": ""}))] == ["fit", "unfit"]
