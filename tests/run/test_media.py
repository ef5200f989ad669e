"""Images, sounds, videos, texts: read by the rule, files before lines, nothing reaches the training (TAB-02)."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import subprocess
import sys
import threading
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import ml_dtypes
import numpy as np
import PIL.Image
import pytest
import torch

import fsrun
from fsrun.core import ids
from fsrun.core.errors import UsageError
from fsrun.core.indexes import TYPES
from fsrun.disk.clock import SystemClock
from fsrun.run import media, png, recorder
from fsrun.run.check import check_run
from fsrun.run.media import Draft
from fsrun.run.reader import RunReader
from fsrun.run.recorder import Recorder
from tests.support import build
from tests.support.command import fsrun as command
from tests.support.fs import Crash, FaultFS, crash_points

pytestmark = pytest.mark.unit
mpl.use("Agg")


def pixels(draft: Draft) -> Any:
    assert draft.encode is not None
    return np.array(PIL.Image.open(io.BytesIO(draft.encode(draft))))


def image(value: object, layout: str | None = None, asked: object = None) -> Any:
    return pixels(media.image(value, layout, asked))


RAMP = np.arange(12, dtype=np.uint8).reshape(2, 2, 3) * 20


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (64, 33)])
def test_a_png_holds_exactly_the_pixels(shape: tuple[int, int], channels: int) -> None:
    array = np.random.default_rng(0).integers(0, 256, (*shape, channels), np.uint8)
    found = np.array(PIL.Image.open(io.BytesIO(png.encode_png(array))))
    assert np.array_equal(found, array[..., 0] if channels == 1 else array)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (RAMP, RAMP),
        (RAMP.transpose(2, 0, 1), RAMP),
        (RAMP[..., 0], RAMP[..., 0]),
        (RAMP[..., :1], RAMP[..., 0]),
        (RAMP[None, ..., 0], RAMP[..., 0]),
        (RAMP.astype(np.int64), RAMP),
        (RAMP.astype(np.float32), RAMP),
        (RAMP / 255, RAMP),
        (RAMP / 127.5 - 1, RAMP),
        (torch.from_numpy(RAMP), RAMP),
        (torch.from_numpy(RAMP).permute(2, 0, 1).requires_grad_(False), RAMP),
        ([[0, 255], [128, 3]], [[0, 255], [128, 3]]),
        (np.array([[True, False]]), [[255, 0]]),
        (np.array([[0, 257, 65535]], np.uint16), [[0, 1, 255]]),
        (np.array([[-5, 300]]), [[0, 255]]),
        (np.array([[-9.0, 400.0]]), [[0, 255]]),
        (np.array([[1e-8, 0.0]]), [[0, 0]]),
        (np.array([[0.5, 1.1, -0.1]]), [[128, 255, 0]]),
        (np.array([[np.nan, 1.0, np.inf, -np.inf]]), [[0, 255, 255, 0]]),
        (np.array([[np.nan, np.nan]]), [[0, 0]]),
        (np.array([[0.5, 1.0]], np.float16), [[128, 255]]),
        (np.array([[6e4, 0.0]], np.float16), [[255, 0]]),
        (torch.tensor([[0.5, 1.0]], dtype=torch.bfloat16, requires_grad=True), [[128, 255]]),
        (np.array([[0.5, 1.0]], ml_dtypes.bfloat16), [[128, 255]]),
        (np.array([[0.5, 1.0]], np.float64)[:, ::-1], [[255, 128]]),
        (np.ma.masked_array([[5, 6]], [[True, False]], np.uint8), [[0, 6]]),
    ],
)
def test_an_array_is_read_by_the_rule_and_never_wraps(value: object, expected: object) -> None:
    assert np.array_equal(image(value), expected)


def test_the_line_says_how_an_array_was_read() -> None:
    draft = media.image(np.array([[np.nan, -1.0, 1.0]]), None, None)
    pixels(draft)
    assert draft.info == {"width": 3, "height": 1, "nan": 1, "range": [-1.0, 1.0]}


def test_layout_and_range_that_are_given_count() -> None:
    cube = np.arange(27, dtype=np.uint8).reshape(3, 3, 3)
    assert np.array_equal(image(cube), cube)
    assert np.array_equal(image(cube, "CHW"), cube.transpose(1, 2, 0))
    assert np.array_equal(image(np.array([[10, 20, 30]], np.uint8), None, (10, 20)), [[0, 255, 255]])
    for asked in ((1, 0), (0, np.inf), (0,), 5, "ab"):
        with pytest.raises((ValueError, TypeError)):
            media.image(RAMP, None, asked)


@pytest.mark.parametrize(
    "value", [np.zeros((0, 0)), np.zeros((2, 2), complex), np.array([["a"]]), None, object(), np.zeros((2, 2, 2, 2)), 5]
)
def test_what_is_no_image_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        media.image(value, None, None)


@pytest.mark.parametrize(
    "mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV", "La", "RGBa"]
)
def test_pil_images_of_all_modes(mode: str) -> None:
    value = (
        PIL.Image.new("LA" if mode == "La" else "RGBA" if mode == "RGBa" else "RGB", (3, 2)).convert(mode)
        if mode in ("La", "RGBa")
        else PIL.Image.new(mode, (3, 2))
    )
    draft = media.image(value, None, None)
    assert pixels(draft).shape[:2] == (2, 3)
    assert draft.info == {"width": 3, "height": 2}


def test_pil_images_of_wide_modes_are_clipped() -> None:
    for mode, dark, bright in (("I", 0, 255), ("F", 0, 255), ("I;16", 0, 65535), ("I;16B", 0, 65535)):
        value = PIL.Image.new(mode, (2, 1))
        value.putpixel((1, 0), 1 if mode == "F" else 65535)
        assert image(value).tolist() == [[dark, bright]], mode
    with pytest.raises(ValueError, match="no pixels"):
        media.image(PIL.Image.new("L", (0, 0)), None, None)


def test_a_figure_is_drawn_at_once() -> None:
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(1, 1), dpi=50)
    draft = media.image(figure, None, None)
    plt.close(figure)
    assert pixels(draft).shape == (50, 50, 4)


@pytest.mark.parametrize(
    ("value", "channels", "expected"),
    [
        (np.array([0.0, 1.0, -1.0, 2.0, np.nan]), 1, [0, 32767, -32767, 32767, 0]),
        (np.array([[1, 2, 3], [4, 5, 6]], np.int16), 2, [1, 4, 2, 5, 3, 6]),
        (np.array([[1, 4], [2, 5], [3, 6]], np.int16), 2, [1, 4, 2, 5, 3, 6]),
        (np.array([-128, 127], np.int8), 1, [-32768, 32512]),
        (np.array([-(2**31), 2**31 - 1], np.int32), 1, [-32768, 32767]),
        (torch.tensor([0.5]), 1, [16384]),
    ],
)
def test_a_sound_is_a_wav_file(value: object, channels: int, expected: list[int]) -> None:
    draft = media.audio(value, 8000)
    assert draft.encode is not None
    with wave.open(io.BytesIO(draft.encode(draft))) as file:
        assert (file.getnchannels(), file.getframerate()) == (channels, 8000)
        assert np.frombuffer(file.readframes(99), "<i2").tolist() == expected


def test_eight_bit_sound_and_what_is_none() -> None:
    draft = media.audio(np.array([0, 128, 255], np.uint8), 8000.0)
    assert draft.encode is not None
    with wave.open(io.BytesIO(draft.encode(draft))) as file:
        assert (file.getsampwidth(), file.readframes(9)) == (1, b"\x00\x80\xff")
    for value, rate in (
        (np.zeros(3), None),
        (np.zeros(3), 0),
        (np.zeros(3), True),
        (np.zeros(3, bool), 1),
        (np.zeros((9, 99, 9)), 1),
    ):
        with pytest.raises(ValueError):
            media.audio(value, rate)


@pytest.mark.parametrize("layout", ["THWC", "TCHW", "THW"])
def test_a_video_is_an_animated_png(layout: str) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (5, 6, 7, 3), np.uint8)
    value = frames if layout == "THWC" else frames.transpose(0, 3, 1, 2) if layout == "TCHW" else frames[..., 0]
    draft = media.video(value, 4, None, None)
    assert draft.encode is not None
    found = PIL.Image.open(io.BytesIO(draft.encode(draft)))
    assert (found.n_frames, found.info["duration"], draft.type) == (5, 250.0, "image/apng")  # type: ignore[attr-defined]
    for at, frame in enumerate(frames):
        found.seek(at)
        assert np.array_equal(np.array(found.convert("RGB")), frame if layout != "THW" else frame[..., :1].repeat(3, 2))
    for fps in (0, "8", True, 5000):
        with pytest.raises(ValueError, match="fps"):
            media.video(frames, fps, None, None)


def test_a_value_that_changes_afterwards_is_recorded_as_it_was() -> None:
    array, tensor, picture = RAMP.copy(), torch.zeros(2, 2), PIL.Image.new("L", (2, 2))
    drafts = [media.image(value, None, None) for value in (array, tensor, picture)]
    array[:] = 9
    tensor[:] = 1
    picture.putpixel((0, 0), 7)
    assert [pixels(draft).tolist() for draft in drafts] == [RAMP.tolist(), [[0, 0]] * 2, [[0, 0]] * 2]


def test_texts_short_and_long() -> None:
    assert media.text("half \ud800").text == "half ?"
    draft = media.text("x" * 8193)
    assert draft.encode is not None
    assert (draft.text, draft.encode(draft), draft.suffix) == (None, b"x" * 8193, ".txt")
    with pytest.raises(ValueError, match="a text is a str"):
        media.text(5)


def test_files_are_taken_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plot.SVG").write_text("<svg onload=alert(1)>")
    draft = media.image(str(tmp_path / "plot.SVG"), None, None)
    assert draft.encode is not None
    assert (draft.type, draft.suffix, draft.info) == ("image/svg+xml", ".svg", {"name": "plot.SVG"})
    assert draft.encode(draft) == b"<svg onload=alert(1)>"
    assert media.text(tmp_path / "plot.SVG").type == media.audio(tmp_path / "plot.SVG", None).type == draft.type
    assert media.video(tmp_path / "plot.SVG", 8, None, None).type == draft.type
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(media, "MAX_FILE", 10)
    for path, why in (
        (tmp_path, "no file"),
        (tmp_path / "pipe", "no file"),
        (tmp_path / "plot.SVG", "use add_artifact"),
    ):
        with pytest.raises(ValueError, match=why):
            media.from_file(path)
    with pytest.raises(FileNotFoundError):
        media.from_file(tmp_path / "none")


def test_what_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "MAX_ITEM", 10)
    for value in (RAMP, torch.zeros(4, 4), [[0] * 40], PIL.Image.new("L", (4, 4))):
        with pytest.raises(ValueError, match="MB"):
            media.image(value, None, None)
    with pytest.raises(ValueError, match="MB"):
        media.text("x" * 11)


# The run.


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fsrun.Run]:
    monkeypatch.setenv("FSRUN_ROOT", str(tmp_path))
    with fsrun.init("speech", run_id="big") as opened:
        yield opened


def test_all_of_it_comes_back_also_elsewhere(run: fsrun.Run, tmp_path: Path) -> None:
    run.add_scalar({"a": 1.0}, step=5)
    run.add_image("val/x", RAMP, caption="a " + "b" * 9999)
    run.add_image("val/x", RAMP, 2)
    run.add_audio("say", np.zeros(80), 3, rate=8000)
    run.add_video("film", np.zeros((2, 3, 3, 3)), 3)
    run.add_text("note", "<img src=x onerror=alert(1)>", 3)
    run.add_table("t", [{"a": 1}], 3)
    (tmp_path / "m").write_text("m")
    run.add_artifact("m", tmp_path / "m", step=3)
    assert run.flush(90)
    run.finish()
    moved = tmp_path / "else" / "where" / "big"
    shutil.copytree(run.path, moved)
    shutil.rmtree(run.path)
    reader = RunReader(str(moved))
    found = reader.media()
    assert [(m.kind, m.tag, m.step) for m in found] == [
        ("video", "film", 3), ("text", "note", 3), ("audio", "say", 3), ("image", "val/x", 2), ("image", "val/x", 5),
    ]  # fmt: skip
    assert len(found[4].caption or "") == 4096
    assert found[1].text == "<img src=x onerror=alert(1)>"
    for item in found:
        assert item.path is None or Path(item.path).stat().st_size == item.size
        assert item.path is None or item.path.startswith(str(moved))
    assert [m.step for m in reader.media("val/x", kind="image")] == [2, 5]
    assert reader.table("t").to_pylist() == [{"a": 1}]
    assert [(a.step, a.files()) for a in reader.artifacts("m")] == [(3, {"m": 1})]
    assert (reader.problems, check_run(str(moved))) == ([], [])


def test_wrong_input_is_a_warning_and_strict_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FSRUN_ROOT", str(tmp_path))

    class Nasty:
        def __array__(self, *_: object, **__: object) -> Any:
            raise MemoryError("mine")

    for strict in (False, True):
        with fsrun.init("speech", run_id=f"r{strict}", strict=strict) as run:
            for call in (
                lambda: run.add_image("x", Nasty()),
                lambda: run.add_image(5, RAMP),  # type: ignore[arg-type]
                lambda: run.add_image("x", RAMP, 1.5),  # type: ignore[arg-type]
                lambda: run.add_image("x", np.zeros((0, 0))),
                lambda: run.add_audio("x", np.zeros(3)),
                lambda: run.add_text("x", None),  # type: ignore[arg-type]
                lambda: run.add_table("x", None),
                lambda: run.add_artifact("x", None),  # type: ignore[arg-type]
            ):
                if strict:
                    with pytest.raises(UsageError):
                        call()
                else:
                    call()
    assert "add_image 'x': MemoryError: mine" in caplog.text
    assert "has no pixels" in caplog.text


def test_a_quiet_run_copies_nothing(run: fsrun.Run) -> None:
    run.finish()

    class Untouched:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError

    run.add_image("x", Untouched())
    run.add_table("x", Untouched())
    run.add_artifact("x", "/nowhere")


# The recorder.


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def fs() -> FaultFS:
    return FaultFS()


@pytest.fixture
def keeper(tmp_path: Path, said: list[str], fs: FaultFS) -> Recorder:
    return Recorder(fs, SystemClock(), str(tmp_path), "main", 1, said.append)


def put(keeper: Recorder, tag: str, value: object = RAMP, step: int = 0) -> None:
    keeper.add_medium("image", tag, media.image(value, None, None), step, None)


def tags(folder: Path, session: int = 1) -> list[str]:
    return [json.loads(line)["tag"] for line in (folder / "media" / f"main.{session}.jsonl").read_text().splitlines()]


def test_a_full_queue_drops_with_a_count(
    keeper: Recorder, tmp_path: Path, said: list[str], fs: FaultFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = threading.Event()
    gate = fs.hang("create", reached=reached)
    put(keeper, "first")
    assert reached.wait(90)
    assert not keeper.has_room(recorder.MAX_BYTES)
    for _ in range(recorder.MAX_WAITING + 2):
        put(keeper, "more", np.zeros((1, 1)))
    gate.set()
    assert keeper.close(60)
    assert len(tags(tmp_path)) == recorder.MAX_WAITING
    assert "dropped: the queue is full" in said[0]
    assert said[-1].endswith("4 images, sounds, videos, texts or tables were dropped in all")


def test_a_single_large_one_is_taken_by_an_empty_queue(keeper: Recorder) -> None:
    assert keeper.has_room(recorder.MAX_BYTES + 1)


def test_a_full_disk_is_a_warning_and_leaves_nothing_behind(
    keeper: Recorder, tmp_path: Path, said: list[str], fs: FaultFS
) -> None:
    fs.fail("rename", error=errno.ENOSPC)
    put(keeper, "a")
    put(keeper, "b")
    assert keeper.close(90)
    assert tags(tmp_path) == ["b"]
    assert "image 'a' was not kept" in said[0]
    assert not [name for name in os.listdir(tmp_path / "media" / "a") if name]


def test_a_big_file_that_grows_while_it_is_copied_is_refused(
    keeper: Recorder, tmp_path: Path, said: list[str], fs: FaultFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media, "_READ_AT_ONCE", 1)
    source = tmp_path / "film.mp4"
    source.write_bytes(b"12345")
    put(keeper, "good", source)
    assert keeper.flush(90)
    fs.on("copy", before=lambda _: source.write_bytes(b"1234567"))
    put(keeper, "bad", source)
    assert keeper.close(90)
    assert tags(tmp_path) == ["good"]
    assert "written to while it was copied" in said[0]
    found = RunReader(str(tmp_path)).media()[0]
    assert found.path is not None
    assert (Path(found.path).read_bytes(), found.type, found.info) == (b"12345", TYPES[".mp4"], {"name": "film.mp4"})


def test_a_hung_folder_holds_neither_the_caller_nor_the_end(keeper: Recorder, said: list[str], fs: FaultFS) -> None:
    gate = fs.hang()
    put(keeper, "a")
    put(keeper, "b")
    assert keeper.flush(0.01) is False
    assert keeper.close(0.05) is False
    assert "not all that was recorded" in said[-1]
    gate.set()


def test_an_index_that_is_full_is_tried_again(keeper: Recorder, tmp_path: Path, said: list[str], fs: FaultFS) -> None:
    keeper._media._retry = 0.01
    fs.fail("log.write", error=errno.ENOSPC, times=3)
    put(keeper, "a")
    assert keeper.flush(90)
    assert tags(tmp_path) == ["a"]
    assert "its lines wait" in said[0]


def test_a_line_in_doubt_is_written_again_in_the_next_session(keeper: Recorder, tmp_path: Path) -> None:
    put(keeper, "a")
    assert keeper.flush(90)
    sizes = keeper.acknowledged()
    put(keeper, "b")
    assert keeper.flush(0.2) is False
    keeper.reopen(2)
    assert keeper.close(90)
    assert sizes == {"media/main.1.jsonl": os.path.getsize(tmp_path / "media" / "main.1.jsonl")}
    assert (tags(tmp_path), tags(tmp_path, 2)) == (["a"], ["b"])


def test_a_fenced_session_writes_no_more(keeper: Recorder, tmp_path: Path) -> None:
    put(keeper, "a")
    assert keeper.flush(90)
    keeper.fenced()
    put(keeper, "b")
    assert keeper.close(1)
    assert tags(tmp_path) == ["a"]


def test_where_no_thread_can_be_started_it_is_done_at_once(
    keeper: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    put(keeper, "a")
    assert tags(tmp_path) == ["a"]
    keeper.moved()
    assert keeper.close(1)


@pytest.mark.crash
def test_stopped_anywhere_the_file_stands_before_its_line(tmp_path: Path, said: list[str]) -> None:
    def work(fs: FaultFS) -> None:
        folder = tmp_path / f"run{len(os.listdir(tmp_path))}"
        folder.mkdir()
        keeper = Recorder(fs, SystemClock(), str(folder), "main", 1, said.append)
        draft = media.image(RAMP, None, None)
        try:
            line = recorder.MediaLine(step=0, time=0.0, kind="image", tag="x")
            keeper._record(
                ("media", "x", "x"),
                draft,
                0,
                lambda path, size: recorder.MediaLine(
                    step=0, time=0.0, kind="image", tag=line.tag, path=path, size=size
                ),
            )
            keeper._indexes["media"].store()
        finally:
            for item in RunReader(str(folder)).media():
                assert item.path is not None
                assert Path(item.path).stat().st_size == item.size

    points = crash_points(work, moments=("before", "after", "torn"))
    assert len(points) > 20
    for number, moment in points:
        fs = FaultFS()
        fs.crash_at(number, moment)
        with pytest.raises(Crash):
            work(fs)


# Reading.


def line(**more: Any) -> bytes:
    return json.dumps({"step": 1, "time": 1.0, "kind": "text", "tag": "t", "text": "x"} | more).encode() + b"\n"


def test_readers_respect_fences_and_resumed_trainers(tmp_path: Path) -> None:
    folder = build.run(tmp_path)
    first = line(step=1, text="one") + line(step=5, text="void by step")
    folder.write("media/main.1.jsonl", first + line(step=2, text="past the fence"))
    folder.lock("main", 1)
    folder.end("main", 1)
    folder.lock("main", 2, fence={"media/main.1.jsonl": len(first)})
    folder.write("media/main.2.jsonl", line(step=4, text="two") + line(step=9)[:-1])
    folder.write("media/eval.1.jsonl", line(step=5, text="side"))
    reader = RunReader(str(folder.path))
    assert [(m.text, m.session) for m in reader.media()] == [("one", 1), ("two", 2), ("side", 1)]
    assert [m.text for m in reader.media(all=True)] == ["one", "two", "side", "void by step"]


def test_a_lock_that_appears_meanwhile_means_another_look(tmp_path: Path) -> None:
    folder = build.run(tmp_path)
    folder.lock("main", 1)
    folder.write("media/main.1.jsonl", line())
    fs = FaultFS()
    fs.on("open", match="media/main.1.jsonl", after=lambda _: folder.lock("main", 2, fence={}))
    assert RunReader(str(folder.path), fs=fs).media() == []


def test_paths_out_of_the_run_are_refused(tmp_path: Path) -> None:
    folder = build.run(tmp_path)
    folder.lock("main", 1)
    folder.end("main", 1)
    (tmp_path / "secret").write_text("s")
    (folder.path / "media").mkdir()
    (folder.path / "media" / "link").symlink_to(tmp_path)
    paths = ["/etc/passwd", "../../../secret", "media/../../../../secret", "media/link/secret", "media//x"]
    folder.write("media/main.1.jsonl", b"".join(line(path=p, text=None, size=1) for p in paths) + b"no json\n[]\n")
    reader = RunReader(str(folder.path))
    assert reader.media() == []
    assert [problem.line for problem in reader.problems] == [1, 2, 3, 4, 5, 6, 7]
    found = [f for f in check_run(str(folder.path)) if f.file == "media/main.1.jsonl"]
    assert [(f.severity, f.line, f.rule) for f in found] == [("error", n, "6.10") for n in range(1, 8)]


def test_check_misses_files_and_notices_what_was_rewritten(tmp_path: Path, run: fsrun.Run) -> None:
    source = tmp_path / "model.pt"
    source.write_text("weights")
    run.add_artifact("m", source)
    run.add_artifact("n", source, copy=True)
    run.add_image("x", RAMP)
    run.add_image("y", RAMP)
    run.flush(90)
    run.finish()
    with source.open("a") as file:
        file.write("!")
    kept = Path(run.path, "artifacts/n/v0")
    (kept / "files" / "model.pt").unlink()
    one, two = (Path(item.path or "") for item in RunReader(run.path).media())
    one.unlink()
    two.write_bytes(b"short")
    said = [f"{f.file}:{f.line} {f.message}" for f in check_run(run.path)]
    assert len(said) == 4
    assert "media/main.1.jsonl:1 'media/x/0.main.1.0.png' is not there" in said[0]
    assert "has 5 bytes, not" in said[1]
    assert said[2].endswith("artifacts/m/v0/files/model.pt has 8 bytes, not 7: it was rewritten in place")
    assert "artifacts/n/v0/files/model.pt is not there" in said[3]
    kept.joinpath("manifest.json").write_text("[]\n")
    assert any("is no manifest" in f.message for f in check_run(run.path))
    with pytest.raises(fsrun.InvalidError, match="no manifest"):
        RunReader(run.path).artifacts("n")[0].files()


def test_show_lists_what_was_recorded(run: fsrun.Run, tmp_path: Path) -> None:
    (tmp_path / "m").write_text("m")
    for step in (1, 2):
        run.add_image("val/<b>\x1b[31m", RAMP, step)
    run.add_text("note", "hi", 3)
    run.add_table("t", [{"a": 1}], 4)
    run.add_artifact("m", tmp_path / "m")
    run.flush(90)
    run.finish()
    out = command("show", run.path, "--json").stdout
    groups = [(g["kind"], g["count"], g["step"], g["path"]) for g in json.loads(out)["recorded"]]
    folder = ids.safe_folder("val/<b>\x1b[31m")
    assert groups == [
        ("text", 1, 3, None),
        ("image", 2, 2, f"media/{folder}/2.main.1.1.png"),
        ("table", 1, 4, "tables/t/4.main.1.2.parquet"),
        ("artifact", 1, None, "artifacts/m/v0/files"),
    ]
    shown = command("show", run.path)
    assert (shown.exit_code, "\x1b" in shown.stdout, "artifacts/m/v0/files" in shown.stdout) == (0, False, True)


def test_a_killed_run_and_one_that_exits_amid_everything_leave_a_valid_folder(tmp_path: Path) -> None:
    program = (
        "import os, sys, numpy as np, fsrun\n"
        "run = fsrun.init('speech', run_id=sys.argv[1], timeout=60)\n"
        "if os.fork() == 0:\n"
        "    run.add_image('x', np.zeros((4, 4))); run.add_table('t', [[1]]); os._exit(0)\n"
        "os.wait()\n"
        "for i in range(40):\n"
        "    run.add_image('x', np.random.rand(64, 64, 3), i)\n"
        "    run.add_table('t', [[i]], i)\n"
        "    if i == 20: run.flush(90)\n"
        "if sys.argv[1] == 'killed': os.kill(os.getpid(), 9)\n"
    )
    for how, code in (("killed", -9), ("exited", 0)):
        env = os.environ | {"FSRUN_ROOT": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", program, how], env=env, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (code, "")
        path = str(tmp_path / "speech" / how)
        reader = RunReader(path)
        least = 40 if how == "exited" else 21
        assert len(reader.media()) >= least
        assert len(reader.tables()) >= least
        assert [f.message for f in check_run(path) if f.severity == "error"] == []
