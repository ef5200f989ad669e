from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fsrun.core import codec
from fsrun.core.errors import HeldError
from fsrun.core.records import Meta
from fsrun.disk.fs import FileSystem, LocalFileSystem
from fsrun.disk.store import Store
from fsrun.run import fingerprint, handover
from fsrun.run.handover import HandOver, withdraw_finished
from fsrun.run.latch import Inbox
from tests.support.fs import FOR_EVER, CountingFS, FaultFS
from tests.support.programs import PATIENCE
from tests.support.queue import HandSession, hand_over_now, make_run, put_plain


class Trainer:
    """A run, a folder of checkpoints, and a hand-over that remembers its warnings."""

    def __init__(self, tmp_path: Path, fs: FileSystem | None = None, **options: Any) -> None:
        self.run = make_run(tmp_path / "run")
        self.ckpt = tmp_path / "ckpt"
        self.ckpt.mkdir()
        self.warnings: list[str] = []
        self.session = HandSession(fs or LocalFileSystem(), str(self.run), "main", 1)
        self.unit = Store(fs or LocalFileSystem(), str(self.run), "main", 1)
        settings = {"wait": PATIENCE} | options
        self.hand_over = HandOver(self.session, self.unit, warn=self.warnings.append, **settings)

    def save(self, name: str, content: bytes = b"weights") -> Path:
        path = self.ckpt / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def enqueue(self, path: Path, **options: Any) -> str | None:
        return self.hand_over.enqueue(path, **options)

    def queued(self) -> list[str]:
        return sorted(os.listdir(self.run / "queue"))

    def meta(self, entry: str) -> Meta:
        return Meta.from_json(json.loads((self.run / "meta" / f"{entry}.json").read_text()))


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    return Trainer(tmp_path)


def test_a_file_is_handed_over_by_a_link_with_all_that_is_known_of_it(trainer: Trainer) -> None:
    path = trainer.save("step_7.pt")
    assert trainer.enqueue(path, step=1000, main_session=4) == "step_7.pt"
    there = trainer.run / "queue" / "step_7.pt"
    assert there.stat().st_ino == path.stat().st_ino
    meta = trainer.meta("step_7.pt")
    assert (meta.step, meta.main_session, meta.kind, meta.size) == (1000, 4, "file", 7)
    assert meta.source == str(path)
    assert fingerprint.compare(LocalFileSystem(), str(there), meta.files) is None
    assert trainer.warnings == []


def test_without_a_step_the_name_tells_it_and_a_step_that_is_none_is_one_warning(trainer: Trainer) -> None:
    path = trainer.save("epoch_012.pt")
    trainer.enqueue(path)
    assert trainer.meta("epoch_012.pt").step == 12
    assert trainer.enqueue(path, step="seven") == "epoch_012~2.pt"
    assert trainer.meta("epoch_012~2.pt").step == 12
    assert len(trainer.warnings) == 1


def test_a_name_is_used_once_and_the_same_checkpoint_twice_is_two_entries(trainer: Trainer) -> None:
    path = trainer.save("last.pt")
    assert [trainer.enqueue(path) for _ in range(3)] == ["last.pt", "last~2.pt", "last~3.pt"]
    orders = [trainer.meta(name).order for name in ("last.pt", "last~2.pt", "last~3.pt")]
    assert orders == sorted(set(orders))


def test_a_plain_writers_entry_of_that_name_is_not_replaced(trainer: Trainer) -> None:
    put_plain(trainer.run, "a.pt", b"plain")
    assert trainer.enqueue(trainer.save("a.pt")) == "a~2.pt"
    assert (trainer.run / "queue" / "a.pt").read_bytes() == b"plain"
    assert os.listdir(trainer.run / "meta") == ["a~2.pt.json"]
    put_plain(trainer.run, "folder", b"plain")
    trainer.save("folder/x")
    assert trainer.enqueue(trainer.ckpt / "folder") == "folder~2"
    assert (trainer.run / "queue" / "folder").read_bytes() == b"plain"


@pytest.mark.parametrize("where", ["queue", "retry/2", "claimed/eval.1/1", "evals"])
@pytest.mark.parametrize("plain_first", [True, False])
def test_a_next_use_is_never_a_name_that_a_plain_writers_file_has(
    trainer: Trainer, where: str, plain_first: bool
) -> None:
    """Both where the trainer used the name itself, and where a plain writer's file has that too."""
    folder = trainer.run / where
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ("x_1~2.pt.1.json" if where == "evals" else "x_1~2.pt")).write_bytes(b"plain")
    if plain_first:
        put_plain(trainer.run, "x_1.pt")
    else:
        assert trainer.enqueue(trainer.save("x_1.pt")) == "x_1.pt"
    assert trainer.enqueue(trainer.save("x_1.pt")) == "x_1~3.pt"
    assert trainer.hand_over.drain(PATIENCE)
    assert "x_1~2.pt.json" not in os.listdir(trainer.run / "meta")
    assert (trainer.run / "queue" / "x_1~3.pt").exists()
    assert trainer.warnings == []


def test_a_folder_is_linked_file_by_file_and_appears_whole(trainer: Trainer) -> None:
    for name in ("model-1.safetensors", "model-2.safetensors", "optim/state.pt"):
        trainer.save(f"checkpoint-500/{name}", name.encode())
    (trainer.ckpt / "checkpoint-500" / "empty").mkdir()
    assert trainer.enqueue(trainer.ckpt / "checkpoint-500") == "checkpoint-500"
    meta = trainer.meta("checkpoint-500")
    assert [item["name"] for item in meta.files] == ["model-1.safetensors", "model-2.safetensors", "optim/state.pt"]
    there = trainer.run / "queue" / "checkpoint-500"
    assert (there / "optim/state.pt").read_bytes() == b"optim/state.pt"
    assert (there / "optim/state.pt").stat().st_nlink == 2
    assert meta.step == 500


def test_a_folder_that_is_renamed_right_after_the_call_arrives_whole(tmp_path: Path) -> None:
    fs = FaultFS()
    trainer = Trainer(tmp_path, fs, wait=0.05)
    for i in range(20):
        trainer.save(f"tmp-checkpoint-500/{i}")
    gate = fs.hang("scan", times=1)
    assert trainer.enqueue(trainer.ckpt / "tmp-checkpoint-500") is None  # the source is open, the rest is to come
    (trainer.ckpt / "tmp-checkpoint-500").rename(trainer.ckpt / "checkpoint-500")
    gate.set()
    assert trainer.hand_over.drain(PATIENCE)
    assert len(os.listdir(trainer.run / "queue" / "tmp-checkpoint-500")) == 20
    assert len(trainer.warnings) == 1
    assert "goes on in a thread" in trainer.warnings[0]


def test_links_are_followed_and_circles_are_left_out(trainer: Trainer) -> None:
    trainer.save("blobs/a", b"aaa")
    trainer.save("shared/tokenizer.json", b"{}")
    folder = trainer.ckpt / "snap"
    folder.mkdir()
    (folder / "model").symlink_to("../blobs/a")
    (folder / "shared").symlink_to("../shared")
    (folder / "again").symlink_to(".")
    (folder / "self").symlink_to("self")
    (folder / "nothing").symlink_to("../gone")
    assert trainer.enqueue(folder) == "snap"
    there = trainer.run / "queue" / "snap"
    assert sorted(p.name for p in there.rglob("*")) == ["model", "shared", "tokenizer.json"]
    assert not (there / "model").is_symlink()
    assert len(trainer.warnings) == 1
    assert all(name in trainer.warnings[0] for name in ("again", "self", "nothing"))
    link = trainer.ckpt / "latest.pt"
    link.symlink_to("blobs/a")
    assert trainer.enqueue(link) == "latest.pt"
    assert (trainer.run / "queue" / "latest.pt").stat().st_ino == (trainer.ckpt / "blobs/a").stat().st_ino


def test_a_folder_that_is_too_deep_is_refused_whole(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "MAX_DEPTH", 3)
    trainer.save("fits/a/b/1")
    trainer.save("deep/a/b/c/1")
    trainer.save("deep/2")
    assert trainer.enqueue(trainer.ckpt / "fits") == "fits"
    assert trainer.enqueue(trainer.ckpt / "deep") is None
    assert trainer.queued() == ["fits"]
    assert trainer.warnings == [f"{trainer.ckpt}/deep is not handed over: it holds folders that are more than 3 deep"]


@pytest.mark.parametrize("kind", ["missing", "pipe", "socket", "device", "empty folder", "no path"])
def test_what_is_no_checkpoint_is_one_warning_and_none(trainer: Trainer, kind: str) -> None:
    path: Any = trainer.ckpt / "x"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            here = os.getcwd()
            os.chdir(trainer.ckpt)
            try:
                listener.bind("x")
            finally:
                os.chdir(here)
    elif kind == "device":
        path = Path("/dev/null")
    elif kind == "empty folder":
        path.mkdir()
    elif kind == "no path":
        path = 3.5
    assert trainer.enqueue(path) is None
    assert trainer.hand_over.drain(PATIENCE)
    assert len(trainer.warnings) == 1, trainer.warnings
    assert trainer.queued() == []
    assert os.listdir(trainer.run / "meta") == []


def test_pipes_and_sockets_inside_a_folder_are_left_out_with_one_warning(trainer: Trainer) -> None:
    trainer.save("snap/model")
    os.mkfifo(trainer.ckpt / "snap" / "pipe")
    assert trainer.enqueue(trainer.ckpt / "snap") == "snap"
    assert os.listdir(trainer.run / "queue" / "snap") == ["model"]
    assert len(trainer.warnings) == 1
    assert "pipe" in trainer.warnings[0]


@pytest.mark.parametrize(
    ("name", "entry"),
    [("x" * 250 + ".pt", "x" * 197 + ".pt"), ("a\nb.pt", "a_b.pt"), (".hidden.pt", "_hidden.pt"), ("c.tmp", "c_tmp")],
)
def test_a_name_that_no_entry_can_have_is_replaced_by_the_nearest_with_a_warning(
    trainer: Trainer, name: str, entry: str
) -> None:
    assert trainer.enqueue(trainer.save("c.pt"), name=name) == entry
    assert len(trainer.warnings) == 1
    assert entry in trainer.warnings[0]


@pytest.mark.parametrize("error", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP])
def test_where_links_are_refused_files_are_copied(tmp_path: Path, error: int) -> None:
    fs = FaultFS()
    trainer = Trainer(tmp_path, fs)
    fs.fail("link", match="/queue/", error=error, times=1 << 30)
    path = trainer.save("a.pt", b"x" * 100_000)
    assert trainer.enqueue(path) == "a.pt"
    for name in ("1", "2", "deep/3"):
        trainer.save(f"snap/{name}", name.encode())
    assert trainer.enqueue(trainer.ckpt / "snap") == "snap"
    assert trainer.hand_over.drain(PATIENCE)
    assert (trainer.run / "queue" / "a.pt").read_bytes() == path.read_bytes()
    assert (trainer.run / "queue" / "a.pt").stat().st_ino != path.stat().st_ino
    for entry in ("a.pt", "snap"):
        meta = trainer.meta(entry)
        assert all("mtime_ns" not in item for item in meta.files)
        assert fingerprint.compare(fs, str(trainer.run / "queue" / entry), meta.files) is None
    assert trainer.warnings == []
    assert trainer.queued() == ["a.pt", "snap"]


def test_a_folder_is_copied_from_its_open_files_although_it_is_deleted_meanwhile(tmp_path: Path) -> None:
    fs = FaultFS()
    trainer = Trainer(tmp_path, fs)
    fs.fail("link", match="/queue/.tmp", error=errno.EXDEV, times=1 << 30)
    gate = fs.hang("copy", times=1)
    for name in ("1", "2"):
        trainer.save(f"snap/{name}", name.encode())
    assert trainer.enqueue(trainer.ckpt / "snap") == "snap"
    for path in (trainer.ckpt / "snap").iterdir():
        path.unlink()
    gate.set()
    assert trainer.hand_over.drain(PATIENCE)
    assert sorted(p.read_bytes() for p in (trainer.run / "queue" / "snap").iterdir()) == [b"1", b"2"]
    assert trainer.warnings == []


def test_a_file_with_too_many_links_is_copied_and_the_others_are_linked(tmp_path: Path) -> None:
    fs = FaultFS()
    trainer = Trainer(tmp_path, fs)
    fs.fail("link", match="/queue/.tmp", error=errno.EMLINK, times=1)
    for name in ("1", "2"):
        trainer.save(f"snap/{name}")
    assert trainer.enqueue(trainer.ckpt / "snap") == "snap"
    assert trainer.hand_over.drain(PATIENCE)
    assert sorted(p.stat().st_nlink for p in (trainer.run / "queue" / "snap").iterdir()) == [1, 2]


@pytest.mark.parametrize("folder", [False, True])
def test_a_full_disk_while_copying_leaves_nothing_behind_and_is_one_warning(tmp_path: Path, folder: bool) -> None:
    fs = FaultFS()
    trainer = Trainer(tmp_path, fs)
    fs.fail("link", match="/queue/.tmp", error=errno.EXDEV, times=1 << 30)
    fs.fail("copy", error=errno.ENOSPC, happened=True, skip=1 if folder else 0)
    for name in ("1", "2", "3"):
        trainer.save(f"snap/{name}")
    source = trainer.ckpt / "snap" if folder else trainer.ckpt / "snap" / "1"
    trainer.enqueue(source, name="s")
    assert trainer.hand_over.drain(PATIENCE)
    assert trainer.queued() == []
    assert len(trainer.warnings) == 1
    assert "No space" in trainer.warnings[0]
    # The name was told, so it stays reserved, and says of which checkpoint nothing was handed over.
    assert trainer.meta("s").source == str(source)
    assert trainer.enqueue(source, name="s") == "s~2"


FOR_A_WHILE = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOENT]


@pytest.mark.parametrize("error", FOR_A_WHILE)
@pytest.mark.parametrize("folder", [False, True])
def test_a_copy_that_the_folder_does_not_take_for_a_while_arrives_although_its_source_is_gone(
    tmp_path: Path, folder: bool, error: int
) -> None:
    fs = FaultFS()
    trainer = Trainer(tmp_path, fs, pauses=[0.02])
    fs.fail("link", match="/queue/.tmp", error=errno.EXDEV, times=FOR_EVER)
    fs.fail("copy", error=error, happened=True, times=3, skip=1)
    names = ["snap/1", "snap/2", "snap/3"] if folder else ["1", "2"]
    paths = [trainer.save(name, name.encode()) for name in names]
    told = [trainer.enqueue(path) for path in ([trainer.ckpt / "snap"] if folder else paths)]
    shutil.rmtree(trainer.ckpt)
    trainer.hand_over.finish(0)
    assert trainer.hand_over.drain(90)
    assert trainer.queued() == sorted(["FINISHED", *(["snap"] if folder else names)])
    assert told == (["snap"] if folder else names)
    assert [(trainer.run / "queue" / name).read_bytes() for name in names] == [name.encode() for name in names]
    published = [o.paths[-1] for o in fs.seen if o.name in ("link", "rename") and "/queue/" in o.paths[-1]]
    assert published[-1].endswith("/FINISHED")
    assert len(trainer.warnings) == 1
    assert "tried again" in trainer.warnings[0]


@pytest.mark.parametrize("error", FOR_A_WHILE)
@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("operation", ["mkdir", "create", "link", "rename", "sync_folder"])
@pytest.mark.parametrize("happened", [False, True])
def test_whatever_step_fails_for_a_while_the_checkpoint_arrives_once(
    tmp_path: Path, operation: str, folder: bool, error: int, happened: bool
) -> None:
    for skip in range(4):
        fs = FaultFS()
        (tmp_path / str(skip)).mkdir()
        trainer = Trainer(tmp_path / str(skip), fs, pauses=[0.001])
        fs.fail(operation, error=error, times=3, skip=skip, happened=happened)
        trainer.save("snap/1", b"one")
        trainer.save("snap/2", b"two")
        trainer.enqueue(trainer.ckpt / ("snap" if folder else "snap/1"), name="x")
        assert trainer.hand_over.drain(90)
        assert trainer.queued() == ["x"], [str(o) for o in fs.seen]
        assert os.listdir(trainer.run / "meta") == ["x.json"]
        trainer.hand_over.close()


def test_what_is_not_taken_until_the_end_is_named_and_keeps_its_name(tmp_path: Path) -> None:
    fs, lost = FaultFS(), list[str]()
    trainer = Trainer(tmp_path, fs, pauses=[0.01], lost=lost.append)
    fs.fail("link", match="/queue/.tmp", error=errno.EXDEV, times=FOR_EVER)
    fs.fail("copy", error=errno.ENOSPC, times=FOR_EVER)
    paths = [trainer.save(f"{n}.pt") for n in range(3)]
    assert [trainer.enqueue(path) for path in paths] == ["0.pt", "1.pt", "2.pt"]
    trainer.hand_over.finish(0)
    assert not trainer.hand_over.drain(0.2)
    trainer.hand_over.end()
    assert trainer.hand_over.drain(90)
    for path, said in zip(paths, lost, strict=True):
        assert said.startswith(f"{path} is not handed over: No space left on device")
    assert trainer.queued() == ["FINISHED"]
    assert [trainer.meta(f"{n}.pt").source for n in range(3)] == [str(path) for path in paths]


def test_where_the_queue_is_gone_at_the_end_nobody_waits(tmp_path: Path) -> None:
    lost: list[str] = []
    trainer = Trainer(tmp_path, pauses=[1000.0], lost=lost.append)
    trainer.run.rename(tmp_path / "moved")
    assert trainer.enqueue(trainer.save("a.pt")) is None
    trainer.hand_over.end()
    assert trainer.hand_over.drain(90)
    assert len(lost) == 1


def test_what_was_put_off_just_before_the_end_is_tried_at_the_end_too(tmp_path: Path) -> None:
    class EndFirst(Inbox[Any]):
        """What the thread that copies is told, the end before the hand-over that was put off before it."""

        def put(self, item: Any) -> None:
            if item is not None and item.path:
                self.held = item
                return
            super().put(item)
            super().put(self.held)

    fs = FaultFS()
    trainer = Trainer(tmp_path, fs, pauses=[1000.0])
    trainer.hand_over._copying = EndFirst()
    fs.fail("mkdir", match="/queue/.tmp", error=errno.ENOSPC)
    fs.fail("link", match="/queue/.tmp", error=errno.ENOSPC)
    assert trainer.enqueue(trainer.save("a.pt")) is None
    trainer.hand_over.end()
    assert trainer.hand_over.drain(90)
    assert trainer.queued() == ["a.pt"]


def test_a_folder_that_lost_files_before_another_try_is_not_handed_over(tmp_path: Path) -> None:
    fs, lost = FaultFS(), list[str]()
    trainer = Trainer(tmp_path, fs, pauses=[0.05], lost=lost.append)
    fs.fail("mkdir", match="/queue/.tmp", error=errno.ENOSPC)
    trainer.save("snap/1")
    trainer.save("snap/2").touch()
    assert trainer.enqueue(trainer.ckpt / "snap") is None
    (trainer.ckpt / "snap" / "2").unlink()
    assert trainer.hand_over.drain(90)
    assert trainer.queued() == []
    assert "files came or went" in lost[0]


def test_what_waits_leaves_the_program_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "_MOST_OPEN", 3)
    fs, lost = FaultFS(), list[str]()
    trainer = Trainer(tmp_path, fs, pauses=[60.0], lost=lost.append)
    fs.fail("create", match="/meta/", error=errno.ENOSPC, times=FOR_EVER)
    for n in range(6):
        trainer.enqueue(trainer.save(f"{n}.pt"))
    assert trainer.hand_over.pending == 3
    assert len(lost) == 3
    fs.clear()
    trainer.hand_over.end()
    assert trainer.hand_over.drain(90)
    assert trainer.queued() == ["0.pt", "1.pt", "2.pt"]


def test_what_waits_when_the_threads_end_is_named(tmp_path: Path) -> None:
    fs, lost = FaultFS(), list[str]()
    trainer = Trainer(tmp_path, fs, pauses=[60.0], lost=lost.append)
    fs.fail("create", match="/meta/", error=errno.ENOSPC, times=FOR_EVER)
    trainer.enqueue(trainer.save("a.pt"))
    trainer.hand_over.close()
    assert trainer.hand_over.drain(90)
    assert "a.pt is not handed over" in lost[0]


def test_a_source_that_is_written_while_it_is_copied_is_not_handed_over(tmp_path: Path) -> None:
    fs = FaultFS()
    trainer = Trainer(tmp_path, fs)
    path = trainer.save("a.pt", b"old")
    fs.fail("link", match="/queue/.tmp", error=errno.EXDEV)
    fs.on("copy", before=lambda _: path.write_bytes(b"newer"))
    trainer.enqueue(path)
    assert trainer.hand_over.drain(PATIENCE)
    assert trainer.queued() == []
    assert "written to while it was copied" in trainer.warnings[0]


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("error", [errno.EEXIST, errno.EIO])
def test_a_link_whose_reply_was_lost_is_found_to_have_happened(tmp_path: Path, which: int, error: int) -> None:
    fs = FaultFS()
    trainer = Trainer(tmp_path, fs)
    fs.fail("link", error=error, happened=True, skip=which)
    assert trainer.enqueue(trainer.save("a.pt")) == "a.pt"
    assert trainer.hand_over.drain(PATIENCE)
    assert trainer.queued() == ["a.pt"]
    assert trainer.warnings == []


def test_a_hung_folder_keeps_the_trainer_for_one_second_at_most(tmp_path: Path) -> None:
    fs = FaultFS()
    trainer = Trainer(tmp_path, fs, wait=0.1)
    gate = fs.hang("open")
    try:
        assert trainer.enqueue(trainer.save("a.pt")) is None
        assert trainer.hand_over.pending == 1
        assert not trainer.hand_over.drain(0.05)
        assert len(trainer.warnings) == 1
    finally:
        gate.set()
    assert trainer.hand_over.drain(PATIENCE)
    assert trainer.queued() == ["a.pt"]


def test_finished_is_written_after_the_last_hand_over_and_names_the_session(tmp_path: Path) -> None:
    fs = FaultFS()
    trainer = Trainer(tmp_path, fs)
    fs.fail("link", match="/queue/.tmp", error=errno.EXDEV, times=1)
    gate = fs.hang("copy", times=1)
    trainer.enqueue(trainer.save("a.pt"))
    assert not trainer.hand_over.finish(timeout=0.05)
    assert "FINISHED" not in trainer.queued()
    gate.set()
    assert trainer.hand_over.drain(PATIENCE)
    assert trainer.queued() == ["FINISHED", "a.pt"]
    order = [
        o.paths[-1].rpartition("/")[2] for o in fs.seen if o.name in ("link", "rename") and "/queue/" in o.paths[-1]
    ]
    assert order[-2:] == ["a.pt", "FINISHED"]
    there = codec.decode_record((trainer.run / "queue" / "FINISHED").read_bytes())
    assert there is not None
    assert there["main_session"] == 1


def test_a_session_that_continues_writes_finished_again_only_where_it_was_written(trainer: Trainer) -> None:
    assert not trainer.hand_over.finished_again(2, timeout=1)
    assert trainer.queued() == []
    assert trainer.hand_over.finish()
    assert trainer.hand_over.finished_again(2, timeout=10)
    assert b'"main_session": 2' in (trainer.run / "queue" / "FINISHED").read_bytes()


def test_a_fenced_trainer_does_not_write_finished(trainer: Trainer) -> None:
    trainer.session.fenced = True
    assert not trainer.hand_over.finish()
    assert trainer.hand_over.drain(PATIENCE)
    assert trainer.queued() == []
    assert "taken over" in trainer.warnings[0]


def test_a_hand_over_after_finish_queue_is_made_with_a_warning(trainer: Trainer) -> None:
    trainer.hand_over.finish()
    assert trainer.enqueue(trainer.save("late.pt")) == "late.pt"
    assert len(trainer.warnings) == 1


def test_a_new_main_process_withdraws_finished(trainer: Trainer) -> None:
    assert not withdraw_finished(trainer.session, trainer.unit)
    trainer.hand_over.finish()
    assert withdraw_finished(trainer.session, trainer.unit)
    assert trainer.queued() == []
    trainer.session.fenced = True
    (trainer.run / "queue" / "FINISHED").touch()
    with pytest.raises(HeldError):
        withdraw_finished(trainer.session, trainer.unit)


def test_a_forked_child_hands_over_nothing_and_does_not_wait(trainer: Trainer) -> None:
    path = trainer.save("a.pt")
    trainer.enqueue(path)
    pid = os.fork()
    if pid == 0:
        given = trainer.enqueue(path), trainer.hand_over.finish(), trainer.hand_over.drain(None)
        os._exit(0 if given == (None, False, True) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert trainer.queued() == ["a.pt"]


def test_hand_overs_from_threads_all_arrive_under_names_of_their_own(trainer: Trainer) -> None:
    path = trainer.save("a.pt")
    names: list[str | None] = []
    threads = [threading.Thread(target=lambda: names.append(trainer.enqueue(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trainer.hand_over.drain(PATIENCE)
    assert len(set(names)) == 8
    assert set(trainer.queued()) == set(names)


def test_two_threads_hand_over_whoever_starts_them_and_end_with_the_run(trainer: Trainer) -> None:
    def threads() -> list[threading.Thread]:
        return [t for t in threading.enumerate() if t.name.startswith("fsrun-handover") and t not in before]

    before = threading.enumerate()
    path = trainer.save("a.pt")
    assert trainer.enqueue(path) == "a.pt"
    # As where a signal came before it was noted that they were started.
    trainer.hand_over._started = False
    assert trainer.enqueue(path) == "a~2.pt"
    for thread in (mine := threads())[2:]:
        thread.join(90)
    assert sum(thread.is_alive() for thread in mine) == 2
    assert trainer.hand_over.drain(90)
    trainer.hand_over.close()
    for thread in mine:
        thread.join(90)
    assert threads() == []


def test_a_hand_over_amid_another_one_waits_for_no_lock(trainer: Trainer) -> None:
    # A signal handler that hands over, or ends the run, comes between any two steps of the thread that it interrupts.
    paths = [trainer.save("a.pt"), trainer.save("b.pt")]
    assert trainer.enqueue(paths[0]) == "a.pt"
    seen = set()

    def step(frame: Any, event: str, argument: object) -> Any:
        if "/fsrun/" not in frame.f_code.co_filename:
            return None
        if (at := (frame.f_code, frame.f_lineno)) not in seen:
            seen.add(at)
            sys.settrace(None)
            began = time.monotonic()
            trainer.enqueue(paths[1])
            assert trainer.hand_over.drain(0.05) or trainer.hand_over.pending
            late.append(time.monotonic() - began)
            sys.settrace(step)
        return step

    late: list[float] = []
    sys.settrace(step)
    try:
        trainer.enqueue(paths[0])
    finally:
        sys.settrace(None)
    assert trainer.hand_over.drain(90)
    assert len(late) > 20
    assert len(trainer.queued()) == len(late) + 2
    assert trainer.warnings == []


def test_handing_over_a_file_costs_few_calls_whatever_its_size(tmp_path: Path) -> None:
    fs = CountingFS()
    trainer = Trainer(tmp_path, fs)
    path = trainer.save("big.pt")
    os.truncate(path, 10 << 30)
    hand_over_now(trainer.hand_over, path)
    assert trainer.queued() == ["big.pt"]
    assert dict(fs.counts) == {"open": 1, "link": 3, "create": 1, "unlink": 2, "sync_folder": 2}


def test_four_thousand_files_take_two_calls_each(tmp_path: Path) -> None:
    fs = CountingFS()
    trainer = Trainer(tmp_path, fs)
    for i in range(4000):
        trainer.save(f"snap/{i}", b"x")
    hand_over_now(trainer.hand_over, trainer.ckpt / "snap")
    assert trainer.queued() == ["snap"]
    assert fs.total <= 2 * 4000 + 12
    assert fs.counts["link"] == 4001
