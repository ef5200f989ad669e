"""Names, texts of the kernel and of git, consoles, addresses, durations: any text is a verdict."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsrun.adapters.http import base_url
from fsrun.adapters.snapshots.folder import parse_name
from fsrun.cli.options import DURATION
from fsrun.cli.plain import MAX_LINE, PlainText, plain_line
from fsrun.cli.text import clean, clean_lines, number
from fsrun.core import ids, layout, order, redaction
from fsrun.core.cgroups import read_usage
from fsrun.core.errors import UsageError
from fsrun.core.mounts import find_mount
from fsrun.core.render import Renderer
from fsrun.core.retention import parse_rule
from fsrun.core.tensors import HeaderError, header_length, parse_header
from fsrun.disk.refresh import fuse_mounted
from fsrun.run import git
from fsrun.web import console
from fsrun.web.query import Query
from tests.fuzz.garbage import bounded, examples, raw, spoiled, verdict

names = st.one_of(
    st.text(max_size=40),
    st.lists(
        st.sampled_from(
            ["main", "eval", ".", "..", "~", "0", "1", "01", "9" * 18, "9" * 30, "lock", "end", "beat", "taken", "json",
             "jsonl", "s0", "samples", "parquet", "0123456789abcdef", ".tmp-", "-", "/", "@", "\n", "\0", "\udc80", "é"]
        ), max_size=9,
    ).map("".join),
)  # fmt: skip
PARSERS: dict[str, Callable[[str], object]] = {
    found.__name__: found
    for found in (
        layout.parse_job_file, layout.looks_like_job_file, layout.parse_log_name, layout.parse_version,
        layout.parse_spill_file, layout.parse_environment_name, layout.parse_outcome_name, layout.parse_samples_name,
        layout.parse_outcome_key, layout.parse_meta_name, layout.parse_claim_folder, layout.is_temp, layout.is_inside,
        layout.parse_temp_name, layout.parse_marker_name, ids.is_id, ids.is_job, ids.is_token, ids.parse_number,
        ids.classify_entry, ids.split_entry, order.step_of_name, parse_name, clean, clean_lines, plain_line,
        redaction.redact_text,
    )
}  # fmt: skip


@pytest.mark.parametrize("parser", PARSERS)
@given(name=names)
@examples(40)
def test_any_name_means_something_or_nothing(parser: str, name: str) -> None:
    verdict(lambda: PARSERS[parser](name))


@given(names)
@examples(60)
def test_a_portable_name_is_one_and_stays_one(name: str) -> None:
    folder = ids.portable(name)
    assert ids.is_id(folder)
    assert ids.portable(folder) == folder
    assert ids.is_entry(order.portable_entry(name))


@given(
    st.from_regex(r"[a-z0-9][a-z0-9_-]{0,20}", fullmatch=True), st.integers(1, 10**18 - 1), st.integers(0, 10**18 - 1),
    st.from_regex(r"[0-9a-z]{8,32}", fullmatch=True),
)  # fmt: skip
@examples(50)
def test_a_good_name_is_read_as_what_it_was_made_of(job: str, session: int, count: int, token: str) -> None:
    found = layout.parse_job_file(layout.beat_name(job, session, token, count))
    assert found is not None
    assert (found.kind, found.job, found.session, found.token, found.count) == ("beat", job, session, token, count)
    assert layout.parse_log_name(layout.spill_name(job, session, count)) == (job, session, count)
    assert layout.parse_claim_folder(layout.claim_folder(job, session)) == (job, session)
    assert layout.parse_temp_name(layout.temp_name(job, session, "00ff")) == (job, session)
    assert layout.parse_outcome_name(layout.outcome_name("a b.pt", session)) == ("a b.pt", session)
    assert layout.parse_samples_name(layout.samples_name("a.1.json", session)) == ("a.1.json", session)


KERNEL = {
    "cgroup": "12:cpu,cpuacct:/a\n4:memory:/b:c\n0::/x\n",
    "files": "200000 100000\nusage_usec 7500000\ninactive_file 5\n12345678\n",
    "mounts": "36 35 98:0 / /mnt rw,noatime master:1 - nfs4 server:/x rw,soft\n25 1 0:5 / / rw - ext4 /d rw\n",
}


@given(spoiled(KERNEL["cgroup"].encode()), spoiled(KERNEL["files"].encode()), st.integers(0, 500))
@examples(60)
def test_what_the_kernel_says_of_groups_is_read_or_passed_over(text: bytes, content: bytes, zeros: int) -> None:
    said = content.decode("utf-8", "replace") + "0" * zeros
    verdict(lambda: read_usage(text.decode("utf-8", "replace"), lambda path: said, 1 << 40))
    huge = "1" + "0" * zeros
    verdict(lambda: read_usage(KERNEL["cgroup"], lambda path: f"{huge} {huge[:1]}" if "max" in path else huge, 1 << 40))
    verdict(lambda: read_usage("0::/x", lambda path: f"{huge} 1" if "max" in path else f"usage_usec {huge}", 1 << 40))


@given(spoiled(KERNEL["mounts"].encode()))
@examples(50)
def test_what_the_kernel_says_of_mounts_is_read_or_passed_over(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    verdict(lambda: find_mount(text, "/mnt/x"))
    verdict(lambda: fuse_mounted(5, text))


PRINTED = st.lists(
    st.sampled_from(
        [b"\x1b[", b"\x1b]0;", b"\x1b[2J", b"\x1b[99999999999999999999A", b"\x1b[;;;H", b"\x9b", b"\x1bP", b"\r", b"\b",
         b"\n", b"\0", b"\xff", b"\xc3", "é".encode(), b"K", b"m", b"9" * 5000, b"x" * 2000, b"\t", b"\x07"]
    ) | st.binary(max_size=20), max_size=20,
)  # fmt: skip


@given(PRINTED)
@examples(60)
def test_whatever_a_program_prints_becomes_readable_lines(pieces: list[bytes]) -> None:
    renderer, plain = Renderer(), PlainText()
    shown = "".join(renderer.feed(piece, float(i)) for i, piece in enumerate(pieces))
    shown += renderer.settle(99.0) + renderer.end()
    assert not any(ord(c) < 32 and c not in "\n\t" for c in shown)
    printed = "".join(map(plain.feed, pieces)) + plain.end()
    assert not any(ord(c) < 32 and c != "\n" for c in printed)


def test_a_line_without_an_end_is_held_in_part_alone() -> None:
    with bounded(64 << 20):
        renderer, plain = Renderer(), PlainText()
        for _ in range(60):
            assert len(renderer.feed(b"x" * 100_000, 0.0)) < 1 << 20
            assert len(plain.feed(b"x" * 100_000)) <= MAX_LINE * 4


@given(
    st.text(max_size=12) | st.sampled_from(["1e400", "nan", "inf", "1e308d", "9" * 5000, "1_0", "٣", "-0", "1 m", "\0"])
)
@examples(60)
def test_any_text_is_a_number_a_time_or_wrong_usage(text: str) -> None:
    verdict(lambda: DURATION.convert(text, None, None), click.UsageError)
    query = Query([("x", text)])
    verdict(lambda: query.integer("x", least=-5, most=5), UsageError)
    verdict(lambda: query.number("x"), UsageError)
    verdict(lambda: query.choice("x", ("a", "b"), "a"), UsageError)
    verdict(lambda: parse_rule(text), UsageError)
    verdict(lambda: base_url(text), UsageError)
    verdict(lambda: number(text))


@given(spoiled(b'\x40\0\0\0\0\0\0\0{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"__metadata__":{"x":"y"}}'))
@examples(60)
def test_a_header_of_tensors_is_read_or_refused(data: bytes) -> None:
    verdict(lambda: header_length(data[:8], len(data)), HeaderError)
    verdict(lambda: parse_header(data[8:], 16), HeaderError)


@given(raw)
@examples(60)
def test_any_bytes_as_a_header_of_tensors_are_refused(data: bytes) -> None:
    verdict(lambda: header_length(data[:8], len(data)), HeaderError)
    verdict(lambda: parse_header(data, 16), HeaderError)


@given(
    spoiled(b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-API_KEY=abc\n+password: 'hunter2'\n https://u:p@h/\n")
)
@examples(50)
def test_any_diff_is_cleaned(data: bytes) -> None:
    assert isinstance(verdict(lambda: git.clean(data, threading.Event())), tuple)


@given(head=st.binary(max_size=60) | st.sampled_from([b"ref: refs/\0x", b"ref:", b"ref: ../../x", b"gitdir: \0"]))
@examples(25)
def test_any_head_of_a_repository_is_a_commit_or_none(tmp_path_factory: pytest.TempPathFactory, head: bytes) -> None:
    folder = tmp_path_factory.mktemp("git")
    (folder / "HEAD").write_bytes(head)
    found = git.read_head(str(folder))
    assert set(found) == {"commit", "branch"}
    (folder / ".git").write_bytes(head)
    verdict(lambda: git.find_git_dir(str(folder)))


@given(PRINTED, st.integers(-(2**63), 2**63), st.integers(1, 1 << 20), st.text(max_size=5))
@examples(60)
def test_any_place_in_a_console_is_shown(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], offset: int, limit: int, wanted: str
) -> None:
    path = Path(tmp_path_factory.mktemp("console"), "x.log")
    path.write_bytes(b"".join(pieces))
    with path.open("rb") as file:
        verdict(lambda: console.search(file.fileno(), wanted or "x", offset, min(limit, 50)))
