"""Which names of a folder are finished checkpoints, and that each is handed over once."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.store import Store
from fsrun.run.outside import OutsideQueue
from fsrun.run.watch import FolderWatch, is_staging
from tests.support import build
from tests.support.clock import FakeClock
from tests.support.fs import FaultFS

pytestmark = pytest.mark.unit
FS = LocalFileSystem()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "ckpt"
    path.mkdir()
    return path


@pytest.fixture
def queue(tmp_path: Path) -> OutsideQueue:
    run = build.run(tmp_path)
    run.lock("main", 1)
    return OutsideQueue(FS, str(run.path), lambda text: pytest.fail(text))


def watch(folder: Path, queue: OutsideQueue, pattern: str = "*", settle: float = 0.0, **more: Any) -> FolderWatch:
    return FolderWatch(FS, str(folder), pattern, queue.unit, settle=settle, **more)


def names(paths: list[str]) -> list[str]:
    return [os.path.basename(path) for path in paths]


@pytest.mark.parametrize(
    "name",
    [
        "tmp-checkpoint-500", "checkpoint-500.tmp", "0.orbax-checkpoint-tmp-1703334121930256", ".hidden.pt", "tmp.pt",
        "model.pt.part", "model.pt.partial", "model.incomplete", "model.tmp.4711", "step_1_tmp", "model.pt~", "a.lock",
    ],
)  # fmt: skip
def test_staging_names_are_not_finished(name: str) -> None:
    assert is_staging(name)


@pytest.mark.parametrize(
    "name", ["checkpoint-500", "epoch=3-step=1200.ckpt", "step_9.pt", "tmpl.pt", "attempt-3", "a~2.pt", "temporal_5"]
)
def test_names_that_trainers_choose_are_finished(name: str) -> None:
    assert not is_staging(name)


def test_a_file_is_ready_when_two_looks_find_it_the_same(folder: Path, queue: OutsideQueue) -> None:
    looking = watch(folder, queue)
    (folder / "step_1.pt").write_bytes(b"12")
    assert looking.look() == []
    (folder / "step_1.pt").write_bytes(b"123")
    assert looking.look() == []
    assert looking.settling
    assert names(looking.look()) == ["step_1.pt"]
    assert names(looking.look()) == ["step_1.pt"], "until it was handed over"
    looking.took(str(folder / "step_1.pt"))
    assert looking.look() == []
    assert not looking.settling


def test_a_folder_that_grows_below_or_holds_staging_names_is_not_ready(folder: Path, queue: OutsideQueue) -> None:
    looking = watch(folder, queue)
    inner = folder / "checkpoint-1" / "shards"
    inner.mkdir(parents=True)
    looking.look()
    assert looking.look() == [], "an empty folder is no checkpoint yet"
    (inner / "a").write_bytes(b"1")
    looking.look()
    (inner / "b").write_bytes(b"1")
    assert looking.look() == []
    (inner / "c.tmp").write_bytes(b"1")
    looking.look()
    assert looking.look() == []
    os.rename(inner / "c.tmp", inner / "c")
    looking.look()
    assert names(looking.look()) == ["checkpoint-1"]


def test_a_checkpoint_is_ready_when_it_stood_still_for_the_settle_time(folder: Path, queue: OutsideQueue) -> None:
    clock = FakeClock()
    looking = watch(folder, queue, settle=10.0, clock=clock)
    (folder / "checkpoint-1").mkdir()
    (folder / "checkpoint-1" / "a").write_bytes(b"1")
    for _ in range(2):  # a writer that pauses for 5 s between two files
        assert looking.look() == []
        clock.advance(5)
    (folder / "checkpoint-1" / "b").write_bytes(b"1")
    assert looking.look() == []
    clock.advance(9.9)
    assert (looking.look(), looking.settling) == ([], True)
    clock.advance(0.2)
    assert names(looking.look()) == ["checkpoint-1"]


def test_a_folder_is_ready_with_the_file_that_was_asked_for(folder: Path, queue: OutsideQueue) -> None:
    for name in ("checkpoint-1", "checkpoint-2"):
        (folder / name / "rank0").mkdir(parents=True)
        (folder / name / "rank0" / "model").write_bytes(b"1")
    (folder / "checkpoint-2" / "rank0" / "done").write_bytes(b"")
    (folder / "step_3.pt").write_bytes(b"a file is a checkpoint as it is")
    for pattern in ("done", "rank0/d*"):
        looking = watch(folder, queue, ready=pattern)
        looking.look()
        assert names(looking.look()) == ["checkpoint-2", "step_3.pt"]
        assert looking.unready == ["checkpoint-1"]
        for name in ("checkpoint-2", "step_3.pt"):
            looking.took(str(folder / name))
        assert not looking.settling, "nobody waits for what is not coming"


def test_what_grows_after_it_was_taken_is_told_once_and_taken_again(folder: Path, queue: OutsideQueue) -> None:
    (folder / "checkpoint-1").mkdir()
    (folder / "checkpoint-1" / "a").write_bytes(b"1")
    looking = watch(folder, queue)
    taken = []
    for data in (b"1", b"12", b"123"):
        (folder / "checkpoint-1" / "b").write_bytes(data)
        looking.look()
        assert looking.grown == ([] if data == b"1" else ["checkpoint-1"])
        for path in looking.look():
            taken.append(queue.enqueue(path))
            looking.took(path)
        assert looking.grown == []
    assert taken == ["checkpoint-1", "checkpoint-1~2", "checkpoint-1~3"]


def test_what_is_being_deleted_is_neither_told_nor_taken_again(folder: Path, queue: OutsideQueue) -> None:
    (folder / "checkpoint-1").mkdir()
    for name in "ab":
        (folder / "checkpoint-1" / name).write_bytes(b"1")
    looking = watch(folder, queue)
    looking.look()
    for path in looking.look():
        looking.took(path)
    os.unlink(folder / "checkpoint-1" / "a")
    assert (looking.look(), looking.look(), looking.grown, looking.settling) == ([], [], [], False)


def test_a_watcher_that_starts_again_sees_that_a_folder_gained_a_file(folder: Path, queue: OutsideQueue) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "x").write_bytes(b"x")
    (folder / "checkpoint-1").mkdir()
    (folder / "checkpoint-1" / "linked").symlink_to(folder / "data")
    assert queue.enqueue(str(folder / "checkpoint-1")) == "checkpoint-1"
    looking = watch(folder, queue, "checkpoint-*")
    assert (looking.look(), looking.look(), looking.settling) == ([], [], False)
    (folder / "checkpoint-1" / "late").write_bytes(b"x")
    again = watch(folder, queue, "checkpoint-*")
    again.look()
    assert names(again.look()) == ["checkpoint-1"]


def test_time_without_a_change_is_counted_from_the_last_one(folder: Path, queue: OutsideQueue) -> None:
    clock = FakeClock()
    looking = watch(folder, queue, clock=clock)
    clock.advance(5)
    looking.look()
    assert looking.still_for == 5
    (folder / "a_1").write_bytes(b"x")
    looking.look()
    assert looking.still_for == 0


def test_what_is_ready_comes_in_the_order_of_steps(folder: Path, queue: OutsideQueue) -> None:
    for name in ("step_10000", "step_9000", "handpicked", "step_200"):
        (folder / name).write_bytes(b"x")
    looking = watch(folder, queue)
    looking.look()
    assert names(looking.look()) == ["step_200", "step_9000", "step_10000", "handpicked"]


def test_only_names_of_the_pattern_and_no_second_name_for_the_same(folder: Path, queue: OutsideQueue) -> None:
    (folder / "step_1.pt").write_bytes(b"x")
    (folder / "optimizer.bin").write_bytes(b"x")
    (folder / "latest.pt").symlink_to("step_1.pt")
    (folder / "broken.pt").symlink_to("nowhere")
    looking = watch(folder, queue, "*.pt")
    looking.look()
    assert names(looking.look()) == ["step_1.pt"]


def test_a_watcher_that_starts_again_takes_nothing_twice(folder: Path, queue: OutsideQueue) -> None:
    (folder / "step_1.pt").write_bytes(b"x")
    (folder / "checkpoint-2").mkdir()
    (folder / "checkpoint-2" / "model").write_bytes(b"y")
    first = watch(folder, queue)
    first.look()
    for path in first.look():
        assert queue.enqueue(path) is not None
    again = watch(folder, queue)
    assert (again.look(), again.look(), again.look()) == ([], [], [])
    assert not again.settling


def test_a_checkpoint_that_was_replaced_is_handed_over_as_the_next_use(folder: Path, queue: OutsideQueue) -> None:
    def replace(data: bytes) -> None:
        (folder / "last.tmp").write_bytes(data)
        os.rename(folder / "last.tmp", folder / "last.pt")

    looking = watch(folder, queue)
    taken = []
    for data in (b"one", b"three"):
        replace(data)
        looking.look()
        for path in looking.look():
            taken.append(queue.enqueue(path))
            looking.took(path)
    assert taken == ["last.pt", "last~2.pt"]


def test_a_folder_that_is_not_there_yet_is_waited_for(tmp_path: Path, queue: OutsideQueue) -> None:
    looking = watch(tmp_path / "later", queue)
    assert looking.look() == []
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "a_1").write_bytes(b"x")
    looking.look()
    assert names(looking.look()) == ["a_1"]


def test_damaged_metas_are_passed_over(folder: Path, queue: OutsideQueue) -> None:
    meta = Path(queue.unit.root) / "meta"
    (meta / "a.json").write_text("{")
    (meta / "b.json").write_text('{"entry": 1}\n')
    (folder / "a").write_bytes(b"x")
    looking = watch(folder, queue)
    looking.look()
    assert names(looking.look()) == ["a"]


def test_the_temporaries_of_a_process_without_a_session_belong_to_no_session(queue: OutsideQueue) -> None:
    from fsrun.core import layout

    assert isinstance(queue.unit, Store)
    assert layout.parse_temp_name(os.path.basename(queue.unit.temp("queue"))) is None


def test_a_watcher_that_was_killed_while_it_copied_takes_the_checkpoint_when_it_starts_again(
    folder: Path, queue: OutsideQueue
) -> None:
    """A copy of many GB takes minutes; a name reserved before it would say that all is done."""
    (folder / "step_1.pt").write_bytes(b"x" * 100)
    seen: list[list[str]] = []
    fs = FaultFS()
    fs.fail("link", match="step_1.pt", error=errno.EXDEV)
    fs.fail("link", match="/proc/", error=errno.EXDEV)
    fs.on("copy", before=lambda operation: seen.append(queue.unit.names("meta")))
    copying = OutsideQueue(fs, queue.path, lambda text: pytest.fail(text))
    assert copying.enqueue(str(folder / "step_1.pt")) == "step_1.pt"
    assert seen == [[]]
    assert queue.unit.names("queue") == ["step_1.pt"]
    assert queue.unit.names("meta") == ["step_1.pt.json"]


def test_a_watcher_that_starts_again_takes_what_was_reserved_last_and_never_published(
    folder: Path, queue: OutsideQueue, tmp_path: Path
) -> None:
    for step in (1, 2, 3):
        (folder / f"step_{step}.pt").write_bytes(b"x" * step)
        os.utime(queue.unit.path("meta", f"{queue.enqueue(str(folder / f'step_{step}.pt'))}.json"), (step, step))

    def taken_again() -> list[str]:
        again = watch(folder, queue, left_trace=queue.left_trace)
        again.look()
        return names(again.look())

    assert taken_again() == []
    for step in (1, 3):
        os.unlink(queue.unit.path("queue", f"step_{step}.pt"))
    # The first one was taken by a loop that makes no claims, perhaps: it stays taken.
    assert taken_again() == ["step_3.pt"]
    evals = Path(queue.path, "evals")
    (evals / "step_3.pt.1.json").write_text("{}")
    assert taken_again() == []
    (evals / "step_3.pt.1.json").unlink()
    (Path(queue.unit.root, "claimed/eval.1/1")).mkdir(parents=True)
    (Path(queue.unit.root, "claimed/eval.1/1/step_3.pt")).write_bytes(b"xxx")
    assert taken_again() == []
