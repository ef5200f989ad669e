"""Where tensors stand in the files of a snapshot, and whether there is room for it."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from fsrun.adapters.snapshots.folder import Owner, SessionFolder
from fsrun.adapters.snapshots.layout import index_file, manifest_of, plan_layout
from fsrun.adapters.snapshots.room import Looker, memory_left
from fsrun.core.tensors import HeaderError, parse_header
from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.store import Store
from tests.support import build

pytestmark = pytest.mark.unit

MIXED = {"a": ("U8", (3,)), "b": ("F64", (1,)), "c": ("BF16", (2,)), "d": ("F32", ()), "e": ("I64", (0,))}


def test_each_tensor_begins_at_a_multiple_of_its_element() -> None:
    (shard,) = plan_layout(MIXED, tied={}, metadata={}, shard_size=1000).shards
    assert [(piece.name, piece.begin, piece.end) for piece in shard.pieces] == [
        ("b", 0, 8), ("e", 8, 8), ("d", 8, 12), ("c", 12, 16), ("a", 16, 19),
    ]  # fmt: skip
    assert (shard.file, shard.data_size, shard.size) == ("model.safetensors", 19, len(shard.header) + 19)
    header = parse_header(shard.header[8:], shard.size)
    assert {name: (span.dtype, span.shape) for name, span in header.tensors.items()} == MIXED
    assert header.metadata == {"format": "pt"}


def test_shards_are_filled_in_order_and_named_by_their_number() -> None:
    layout = plan_layout({f"w{i}": ("U8", (4,)) for i in range(5)}, tied={}, metadata={}, shard_size=8)
    assert [[piece.name for piece in shard.pieces] for shard in layout.shards] == [["w0", "w1"], ["w2", "w3"], ["w4"]]
    assert [shard.file for shard in layout.shards] == [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    assert layout.data_size == 20
    (name,) = index_file(layout)
    index = json.loads(index_file(layout)[name])
    assert name == "model.safetensors.index.json"
    assert index["metadata"] == {"total_size": 20}
    assert index["weight_map"]["w4"] == "model-00003-of-00003.safetensors"


def test_a_manifest_lists_files_ties_and_tensors_but_not_itself() -> None:
    layout = plan_layout({"é": ("F32", (2, 1))}, tied={"b": "é"}, metadata={}, shard_size=100)
    text = manifest_of(layout, {"z": 1, "a": 2, "fsrun-snapshot.json": 9}, {"step": 3})
    assert json.loads(text) == {
        "fsrun": "snapshot",
        "step": 3,
        "files": [{"name": "a", "size": 2}, {"name": "z", "size": 1}],
        "tied": {"b": "é"},
        "tensors": {"é": {"dtype": "F32", "shape": [2, 1]}},
    }
    assert text.endswith(b"\n")


def test_a_type_that_the_format_does_not_know_is_refused() -> None:
    with pytest.raises(HeaderError, match="C128"):
        plan_layout({"a": ("C128", (1,))}, tied={}, metadata={}, shard_size=100)


@pytest.fixture
def place(tmp_path: Path) -> tuple[Looker, SessionFolder, Store]:
    run = build.RunFolder(tmp_path / "p" / "r")
    run.lock("main", 1)
    for folder in ("meta", "claimed", "retry"):
        (run.path / folder).mkdir()
    fs = LocalFileSystem()
    folder = SessionFolder(fs, str(tmp_path / "hf"), Owner(str(run), "r", "main", 1, "00000001token"))
    return Looker(fs, str(run)), folder, Store(fs, str(run), "main", 1)


def enter(unit: Store, where: str, entry: str, *files: str, meta: bool = True) -> None:
    path = Path(unit.root, where, entry)
    path.mkdir(parents=True)
    if meta:
        listed = [{"name": name, "size": 1, "mtime_ns": 1, "sample": ""} for name in files]
        record = {"protocol": "1.0", "entry": entry, "kind": "folder", "files": listed}
        Path(unit.root, "meta", f"{entry}.json").write_text(json.dumps(record) + "\n")


def test_snapshots_that_wait_or_are_in_use_are_counted_wherever_they_stand(
    place: tuple[Looker, SessionFolder, Store],
) -> None:
    looker, folder, unit = place
    manifest = "fsrun-snapshot.json"
    enter(unit, "queue", "a", "model.safetensors", manifest)
    enter(unit, "claimed/eval.1/1", "b", manifest)
    enter(unit, "retry/2", "c", manifest)
    enter(unit, "best", "kept", manifest)
    enter(unit, "failed", "given up", manifest)
    enter(unit, "queue", "checkpoint-5", "model.safetensors")
    enter(unit, "queue", "plain", manifest, meta=False)
    room = looker.look(folder, unit, 1)
    assert room.error == ""
    assert room.waiting == {"a", "b", "c"}
    assert room.used >= {"a", "b", "c", "kept", "given up", "checkpoint-5"}
    assert room.free > 0
    assert not room.other_device


def test_what_cannot_be_looked_at_is_an_error_and_no_exception(place: tuple[Looker, SessionFolder, Store]) -> None:
    looker, folder, unit = place
    Path(folder.directory).write_text("a file")
    assert (
        "File exists" in looker.look(folder, unit, 1).error or "Not a directory" in looker.look(folder, unit, 1).error
    )


def test_a_look_of_another_thread_is_waited_for(
    place: tuple[Looker, SessionFolder, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    looker, folder, unit = place
    gate, began = threading.Event(), threading.Event()
    free = SessionFolder.free

    def held(self: SessionFolder) -> int:
        began.set()
        gate.wait(60)
        return free(self)

    monkeypatch.setattr("fsrun.adapters.snapshots.room.ANSWER_WAIT", 60.0)
    monkeypatch.setattr(SessionFolder, "free", held)
    rooms: list[str] = []
    threads = [threading.Thread(target=lambda: rooms.append(looker.look(folder, unit, 1).error)) for _ in range(3)]
    threads[0].start()
    assert began.wait(60)
    for thread in threads[1:]:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(60)
    assert rooms == ["", "", ""]


def test_memory_is_what_the_host_and_the_control_group_leave() -> None:
    left = memory_left()
    assert left is None or 0 <= left <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_what_was_given_up_is_counted_where_it_is_memory(
    place: tuple[Looker, SessionFolder, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    looker, folder, unit = place
    enter(unit, "failed", "a", "fsrun-snapshot.json")
    enter(unit, "failed", "b", "fsrun-snapshot.json")
    enter(unit, "failed", "checkpoint-5", "model.safetensors")
    assert looker.look(folder, unit, 1).given_up == 0  # on a disk
    monkeypatch.setattr("fsrun.adapters.snapshots.room._is_in_memory", lambda path: True)
    assert looker.look(folder, unit, 1).given_up == 2


@pytest.mark.parametrize(
    ("total", "available", "left"),
    [(64 << 30, 10 << 30, (10 << 30) - (64 << 30) // 20), (24 << 30, 10 << 30, 8 << 30), (4 << 30, 1 << 30, 1 << 29)],
)
def test_some_memory_stays_for_the_trainer(
    total: int, available: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    meminfo = f"MemTotal: {total >> 10} kB\nMemAvailable: {available >> 10} kB\n"
    monkeypatch.setattr("fsrun.adapters.snapshots.room._read", lambda path: meminfo if "meminfo" in path else None)
    assert abs((memory_left() or 0) - left) < 2048
