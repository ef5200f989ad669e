"""Lines of the indexes: names that fit, paths that stay inside, what a resumed trainer voids."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fsrun.core import codec, ids, indexes, layout
from fsrun.core.errors import InvalidError
from fsrun.core.indexes import ArtifactLine, MediaLine, TableLine
from fsrun.core.records import Lock
from fsrun.core.scalars import read_sessions

pytestmark = pytest.mark.unit

MEDIUM: dict[str, Any] = {"step": 1, "time": 2.5, "kind": "image", "tag": "x", "path": "media/x/1.main.1.0.png"}
ANY_NAME = st.text(st.characters(exclude_categories=()), max_size=60)


@pytest.mark.property
@given(ANY_NAME)
@example("main.1.jsonl")
@example("../../etc/passwd")
@example("a/b\\c:d\0\n")
@example("CON")
@example("x" * 400)
@example(".tmp-main.1-00")
@example("\ud800")
def test_any_name_has_a_safe_folder_and_comes_back_from_its_line(name: str) -> None:
    known = indexes.as_name(name)
    folder = ids.safe_folder(known)
    assert ids.is_id(folder)
    assert not folder.lower().endswith(".jsonl")
    assert layout.is_inside(f"media/{folder}")
    line = codec.decode_record(codec.encode_line(MediaLine(step=1, time=0.0, kind="text", tag=known).to_line()))
    assert line is not None
    assert line["tag"] == known == name.encode("utf-8", "replace").decode()


@pytest.mark.property
@given(st.sets(ANY_NAME.map(lambda name: name.encode("utf-8", "replace").decode()), min_size=2, max_size=20))
def test_two_names_have_two_folders(names: set[str]) -> None:
    assert len({ids.safe_folder(name) for name in names}) == len(names)


def test_a_name_is_bounded_text() -> None:
    assert indexes.as_name("é" * 512) == "é" * 512
    for name in ("é" * 513, 5, None, b"x"):
        with pytest.raises(ValueError, match="a name"):
            indexes.as_name(name)


@pytest.mark.parametrize(
    ("name", "suffix", "kind"),
    [
        ("a.PNG", ".png", "image/png"),
        ("a.tar.gz", ".gz", "application/octet-stream"),
        ("plot.svg", ".svg", "image/svg+xml"),
        (".hidden", "", "application/octet-stream"),
        ("a.", "", "application/octet-stream"),
        ("a.b c", "", "application/octet-stream"),
        ("a.é", "", "application/octet-stream"),
        ("a.abcdefghijk", "", "application/octet-stream"),
        ("none", "", "application/octet-stream"),
    ],
)
def test_suffix_and_type_of_a_file(name: str, suffix: str, kind: str) -> None:
    assert indexes.safe_suffix(name) == suffix
    assert indexes.type_of(suffix) == kind


def test_a_line_leaves_out_what_says_nothing_and_keeps_what_it_does_not_know() -> None:
    line = indexes.read_line("media", MEDIUM | {"later": 1})
    assert line.to_line() == MEDIUM | {"type": "application/octet-stream", "size": 0, "later": 1}
    assert indexes.paths_of(line) == [MEDIUM["path"]]
    assert indexes.paths_of(MediaLine(step=1, time=0.0, kind="text", tag="x", text="t")) == []


@pytest.mark.parametrize(
    "change",
    [{"step": 1.5}, {"step": None}, {"tag": 5}, {"kind": ""}, {"size": -1}, {"info": []}, {"path": 5}]
    + [
        {"path": p}
        for p in ("/etc/passwd", "../x", "media/../../x", "media//x", "", "media/./x", "media/a\0b", "media/")
    ],
)
def test_a_faulty_line_does_not_count(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidError):
        indexes.read_line("media", MEDIUM | change)


def test_what_is_no_object_is_no_line() -> None:
    with pytest.raises(InvalidError, match="no JSON object"):
        indexes.read_line("tables", [1])


def test_paths_that_a_line_names() -> None:
    table = TableLine(step=1, time=0.0, name="t", path="tables/t/x.parquet")
    kept = ArtifactLine(
        time=0.0, name="a", version=0, path="artifacts/a/v0/files", manifest="artifacts/a/v0/manifest.json"
    )
    inside = ArtifactLine(
        time=0.0, name="a", version=0, path="best", manifest="artifacts/a/v0/manifest.json", reference=True
    )
    assert indexes.paths_of(table) == ["tables/t/x.parquet"]
    assert indexes.paths_of(kept) == ["artifacts/a/v0/manifest.json", "artifacts/a/v0/files"]
    assert indexes.paths_of(inside) == ["artifacts/a/v0/manifest.json"]


class Item(NamedTuple):
    job: str
    session: int
    step: int


def test_a_resumed_trainer_voids_its_tag_from_its_first_step_on() -> None:
    locks = [
        Lock(job="main", session=n, token="t" * 16, timeout=30, continues=n == 2, fence={} if n > 1 else None)
        for n in (1, 2, 3)
    ]
    items = [Item("main", 1, 1), Item("main", 1, 5), Item("main", 2, 6), Item("main", 3, 5), Item("main", 3, 9)]
    items += [Item("eval", 1, 7), Item("eval", 2, 1), Item("main", 1, 8)]
    keys = ["a"] * 7 + ["b"]
    kept = indexes.standing(items, keys, read_sessions(locks))
    assert kept == [items[0], items[3], items[4], items[5], items[6], items[7]]


def test_versions_and_payload_names() -> None:
    assert layout.payload_name(-5, "eval", 2, 7, ".png") == "-5.eval.2.7.png"
    assert layout.version_path("m", 3) == "artifacts/m/v3"
    assert [layout.parse_version(name) for name in ("v3", "v03", "x", "v")] == [3, None, None, None]
