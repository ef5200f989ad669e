"""``fsrun.snapshot`` with real torch: what is written, what is refused, what never harms the trainer."""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

import fsrun
from fsrun.adapters.weights import read, verify
from fsrun.run.life import LIFE
from fsrun.run.live import LiveRun
from tests.support.fs import FaultFS

CONFIG = {"model_type": "toy", "hidden_size": 4}


@pytest.fixture(autouse=True)
def _no_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSRUN_COMPACT", "0")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[fsrun.Run]:
    with fsrun.init("p", run_id="r", root=tmp_path / "runs", capture=False) as opened:
        yield opened


@pytest.fixture
def hf(tmp_path: Path) -> Path:
    """Where snapshots are written, on the file system of the run."""
    return tmp_path / "hf"


def live() -> LiveRun:
    found = LIFE.runs[-1]
    assert isinstance(found, LiveRun)
    return found


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "fsrun"]


def entry(run: fsrun.Run, name: str) -> Path:
    return Path(run.path) / "queue" / name


def taken(run: fsrun.Run, hf: Path, model: Any, step: int = 3, **options: Any) -> Path:
    """Take one snapshot; returns the folder that evaluators get."""
    name = fsrun.snapshot(model, hf, step, run=run, **({"limit": 1000} | options))
    assert name is not None
    assert run.flush(60)
    return entry(run, name)


def scalars(run: fsrun.Run, tag: str) -> list[tuple[int, float]]:
    run.flush(60)
    lines = (json.loads(line) for line in (Path(run.path) / "scalars" / "main.1.jsonl").read_text().splitlines())
    return [(line["step"], line[tag]) for line in lines if tag in line]


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 4)
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 8, bias=False)
        self.register_buffer("seen", torch.tensor(7))


def same(folder: Path, state: dict[str, Any]) -> None:
    found = load_file(folder / "model.safetensors")
    assert set(found) == set(state)
    for name, tensor in state.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert torch.equal(found[name].flatten().view(torch.uint8), tensor.contiguous().flatten().view(torch.uint8))


def test_a_module_is_exported_as_it_was_when_it_was_called(run: fsrun.Run, hf: Path) -> None:
    model = Toy()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    name = fsrun.snapshot(model, hf, 12, config=CONFIG)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert name == "step_12"
    assert run.flush(60)
    folder = entry(run, name)
    same(folder, before)
    assert json.loads((folder / "config.json").read_text()) == CONFIG
    weights = verify(str(folder), tokenizer=False)
    assert weights.manifest is not None
    assert (weights.manifest["step"], weights.weight_version) == (12, "12")
    meta = json.loads((Path(run.path) / "meta" / "step_12.json").read_text())
    assert (meta["step"], meta["kind"], meta["main_session"]) == (12, "folder", 1)


def test_nothing_is_held_twice_once_it_is_handed_over(run: fsrun.Run, hf: Path) -> None:
    folder = taken(run, hf, Toy())
    assert os.listdir(hf) == []
    assert {path.stat().st_nlink for path in folder.iterdir()} == {1}


def test_the_stall_is_logged_at_its_step(run: fsrun.Run, hf: Path) -> None:
    taken(run, hf, Toy(), 5)
    ((step, seconds),) = scalars(run, "snapshot/stall_s")
    assert step == 5
    assert seconds > 0


STATES: dict[str, Callable[[], dict[str, Any]]] = {
    "transposed": lambda: {"a": torch.arange(6.0).reshape(2, 3).t(), "b": torch.arange(9.0).reshape(3, 3)[:, ::2]},
    "bf16": lambda: {"a": torch.arange(6.0).bfloat16()},
    "fp8": lambda: {"a": torch.arange(6.0).to(torch.float8_e4m3fn), "b": torch.arange(3.0).to(torch.float8_e5m2)},
    "no dimension": lambda: {"a": torch.tensor(3.5), "b": torch.tensor(True)},
    "empty": lambda: {"a": torch.zeros(0), "b": torch.zeros(3, 0, 2, dtype=torch.int64), "c": torch.ones(1)},
    "names": lambda: {"a.b.ü": torch.ones(1), "模型.0": torch.ones(2), "x y/z": torch.ones(3)},
    "widths": lambda: {
        "a": torch.ones(3, dtype=torch.int8),
        "b": torch.ones(3, dtype=torch.float64),
        "c": torch.ones(1, dtype=torch.bool),
        "d": torch.ones(3, dtype=torch.bfloat16),
        "e": torch.ones(5, dtype=torch.int32),
        "f": torch.ones(2, dtype=torch.complex64),
    },
    "a view in the middle": lambda: {"a": torch.arange(10.0)[3:7]},
    "no tensors": dict,
}


@pytest.mark.parametrize("kind", STATES)
def test_any_tensor_is_what_plain_safetensors_loads(run: fsrun.Run, hf: Path, kind: str) -> None:
    state = STATES[kind]()
    folder = taken(run, hf, state)
    same(folder, state)
    assert set(read(str(folder)).tensors) == set(state)


def test_two_thousand_tensors_are_exported_each_time_as_they_are(run: fsrun.Run, hf: Path) -> None:
    state = {f"layers.{i}.weight": torch.full((2,), float(i)) for i in range(2_000)}
    same(taken(run, hf, state, 1), state)
    state["layers.7.weight"] = torch.ones(2)
    same(taken(run, hf, state, 2), state)


def test_shards_have_an_index_and_load_with_it(run: fsrun.Run, hf: Path) -> None:
    state = {f"w{i}": torch.full((100,), float(i)) for i in range(10)}
    folder = taken(run, hf, state, shard_size=1000)
    weights = verify_plain(folder)
    assert len(weights.sizes) == 5
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 4000}
    found: dict[str, Any] = {}
    for file in set(index["weight_map"].values()):
        found |= load_file(folder / file)
    assert all(torch.equal(found[name], tensor) for name, tensor in state.items())


def verify_plain(folder: Path) -> Any:
    (folder / "config.json").write_text("{}")
    return verify(str(folder), tokenizer=False)


def test_a_tensor_larger_than_a_shard_has_one_of_its_own(run: fsrun.Run, hf: Path) -> None:
    folder = taken(run, hf, {"a": torch.ones(1), "b": torch.ones(1000), "c": torch.ones(1)}, shard_size="1KB")
    assert [len(read(str(folder)).tensors), len(read(str(folder)).sizes)] == [3, 3]


def test_tied_weights_are_written_once_and_declared(run: fsrun.Run, hf: Path) -> None:
    model = Toy()
    model.head.weight = model.embed.weight
    folder = taken(run, hf, model)
    assert set(load_file(folder / "model.safetensors")) == {"embed.weight", "norm.weight", "norm.bias", "seen"}
    assert read(str(folder)).tied == {"head.weight": "embed.weight"}
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt", "head.weight": "embed.weight"}


def test_views_of_one_storage_that_differ_are_no_ties(run: fsrun.Run, hf: Path) -> None:
    fused = torch.arange(12.0)
    state = {"q": fused[:4], "k": fused[4:8], "all": fused, "again": fused.view(3, 4)}
    same(taken(run, hf, state), state)


@pytest.mark.parametrize("dtype", [torch.bfloat16, "bfloat16", "torch.bfloat16"])
def test_floating_tensors_alone_are_converted(run: fsrun.Run, hf: Path, dtype: Any) -> None:
    state = {
        "a": torch.tensor([1.0, 2.00001]),
        "b": torch.arange(3),
        "c": torch.ones(2).to(torch.float8_e4m3fn),
        "d": torch.ones(2, dtype=torch.float64),
    }
    folder = taken(run, hf, state, dtype=dtype)
    same(folder, {"a": state["a"].bfloat16(), "b": state["b"], "c": state["c"], "d": torch.ones(2).bfloat16()})


def test_metadata_of_any_kind_is_written_as_text(run: fsrun.Run, hf: Path) -> None:
    metadata = {"epoch": 3, "lr": 0.1, "tags": ["a"], "none": None, "odd": {1}, 5: "five"}
    folder = taken(run, hf, {"a": torch.ones(1)}, metadata=metadata)
    with safe_open(folder / "model.safetensors", "pt") as file:
        found = file.metadata()
    assert found == {
        "format": "pt",
        "epoch": "3",
        "lr": "0.1",
        "tags": '["a"]',
        "none": "null",
        "odd": "{1}",
        "5": "five",
    }


class OptimizedModule(nn.Module):
    """Named and built as what torch.compile returns, whose import takes seconds."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self._orig_mod = inner


def test_what_wraps_a_model_is_taken_off_its_names(run: fsrun.Run, hf: Path) -> None:
    model = Toy()
    plain = model.state_dict()
    same(taken(run, hf, OptimizedModule(model)), plain)
    same(taken(run, hf, nn.DataParallel(OptimizedModule(model))), plain)
    same(taken(run, hf, {f"module.{name}": tensor for name, tensor in plain.items()}), plain)
    same(taken(run, hf, {f"module._orig_mod.{name}": tensor for name, tensor in plain.items()}), plain)
    model.norm = OptimizedModule(model.norm)  # type: ignore[assignment]
    same(taken(run, hf, model), plain)


def test_a_part_that_is_called_module_keeps_its_name(run: fsrun.Run, hf: Path) -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.Linear(2, 2)

    assert set(load_file(taken(run, hf, Holder()) / "model.safetensors")) == {"module.weight", "module.bias"}


def test_what_is_no_tensor_is_left_out_with_one_warning(
    run: fsrun.Run, hf: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = {"a": torch.ones(1), "extra_state": None, "step": 7}
    for step in (1, 2):
        same(taken(run, hf, state, step), {"a": state["a"]})
    assert warnings_of(caplog) == ["what is no tensor is left out of snapshots: extra_state, step"]


class Tokenizer:
    def __init__(self) -> None:
        self.saved = 0

    def __len__(self) -> int:
        return 100

    def save_pretrained(self, folder: str) -> None:
        self.saved += 1
        Path(folder, "tokenizer.json").write_text(f"saved {self.saved}")


def test_a_tokenizer_is_saved_once_and_written_each_time(run: fsrun.Run, hf: Path) -> None:
    tokenizer = Tokenizer()
    for step in (1, 2):
        folder = taken(run, hf, Toy(), step, tokenizer=tokenizer, config=CONFIG)
        assert (folder / "tokenizer.json").read_text() == "saved 1"
        verify(str(folder))


def test_tokenizer_and_config_may_be_folders(run: fsrun.Run, hf: Path, tmp_path: Path) -> None:
    given = tmp_path / "base"
    given.mkdir()
    for name in ("config.json", "generation_config.json", "tokenizer.json", "merges.txt", "model.safetensors"):
        (given / name).write_text("{}")
    folder = taken(run, hf, Toy(), tokenizer=str(given), config=given)
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "generation_config.json", "tokenizer.json", "merges.txt", "model.safetensors",
        "fsrun-snapshot.json",
    }  # fmt: skip
    assert read(str(folder)).manifest is not None
    same(taken(run, hf, {}, config=given / "config.json"), {})


def test_a_step_taken_twice_is_two_entries(run: fsrun.Run, hf: Path) -> None:
    names = [fsrun.snapshot({"a": torch.tensor(float(i))}, hf, 7, limit=9, name="last") for i in range(3)]
    assert run.flush(60)
    assert names == ["last", "last~2", "last~3"]
    found = {path.name: float(load_file(path / "model.safetensors")["a"]) for path in entry(run, "").iterdir()}
    assert found == {"last": 0.0, "last~2": 1.0, "last~3": 2.0}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "model": ({"model": 3}, "no module and no state dict"),
    "nested": ({"model": {"model": {"a": torch.ones(1)}}}, "a state within the state"),
    "step": ({"step": "seven"}, "seven"),
    "dtype": ({"dtype": torch.int8}, "is none of float64, float32, float16, bfloat16"),
    "dtype name": ({"dtype": "float7"}, "dtype float7 is none of"),
    "limit": ({"limit": 0}, "limit=0"),
    "shard size": ({"shard_size": "large"}, "shard_size='large'"),
    "dir": ({"dir": ""}, "an empty path"),
    "tokenizer": ({"tokenizer": 3}, "tokenizer is a int"),
    "config": ({"config": 3}, "config is a int"),
    "no folder": ({"tokenizer": "/nowhere/at/all"}, "No such file"),
    "complex": ({"model": {"a": torch.ones(1, dtype=torch.complex128)}}, "complex128"),
    "sparse": ({"model": {"a": torch.ones(2).to_sparse()}}, "sparse"),
    "meta": ({"model": {"a": torch.ones(2, device="meta")}}, "meta device"),
    "lora": ({"model": {"q.lora_A.weight": torch.ones(2)}}, "LoRA"),
    "two names": ({"model": {"a": torch.ones(1), "_orig_mod.a": torch.ones(1)}}, "two tensors"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_cannot_work_is_one_warning_and_none(
    run: fsrun.Run, hf: Path, kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsrun.adapters.snapshot._NOTICES", type(live().notices)())
    changes, message = BAD[kind]
    arguments: dict[str, Any] = {"model": {"a": torch.ones(1)}, "dir": hf, "step": 1} | changes
    for _ in range(2):
        assert fsrun.snapshot(**arguments) is None
    (warning,) = warnings_of(caplog)
    assert message in warning
    assert run.flush(60)
    assert list(entry(run, "").iterdir()) == []


def test_without_a_run_it_is_one_warning_and_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsrun.adapters.snapshot._NOTICES", fsrun.run.notices.Notices())  # type: ignore[attr-defined]
    assert fsrun.snapshot(Toy(), tmp_path, 1) is None
    assert "call fsrun.init first" in warnings_of(caplog)[0]


def test_without_torch_it_says_what_to_install(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert fsrun.snapshot({}, tmp_path, 1) is None
    assert "pip install 'fsrun[torch]'" in caplog.text


@pytest.mark.parametrize(
    "place", ["fsrun.adapters.snapshots.buffers.copy_into", "fsrun.adapters.snapshots.exporter.Exporter.submit"]
)
def test_what_fails_in_the_copy_is_a_skipped_point_that_nobody_waits_for(
    run: fsrun.Run, hf: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, fails)
        assert fsrun.snapshot(Toy(), hf, 1) is None
    assert "illegal memory access" in warnings_of(caplog)[0]
    assert live().handover.pending == 0
    assert scalars(run, "snapshot/skipped") == [(1, 1)]
    assert fsrun.snapshot(Toy(), hf, 2) == "step_2"


def test_an_interrupt_in_the_copy_goes_on_its_way(run: fsrun.Run, hf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fsrun.adapters.snapshots.buffers.copy_into", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fsrun.snapshot(Toy(), hf, 1)
    assert live().handover.pending == 0


def test_a_run_that_has_ended_takes_none_and_says_nothing(
    run: fsrun.Run, hf: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run.finish()
    assert fsrun.snapshot(Toy(), hf, 1, run=run) is None
    assert warnings_of(caplog) == []


def test_at_the_limit_the_point_is_skipped_and_counted(
    run: fsrun.Run, hf: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = [fsrun.snapshot(Toy(), hf, step) for step in range(5)]
    assert names == ["step_0", "step_1", None, None, None]
    assert scalars(run, "snapshot/skipped") == [(2, 1), (3, 2), (4, 3)]
    (warning,) = warnings_of(caplog)
    assert "the snapshot of step 2 is skipped: 2 snapshots wait or are in use (limit=2)" in warning
    assert sorted(path.name for path in entry(run, "").iterdir()) == ["step_0", "step_1"]


def test_snapshots_in_use_and_waiting_again_count_and_other_checkpoints_do_not(
    run: fsrun.Run, hf: Path, tmp_path: Path
) -> None:
    (tmp_path / "step_1.pt").write_bytes(b"x")
    run.enqueue(tmp_path / "step_1.pt")
    first, second = taken(run, hf, Toy(), 1), taken(run, hf, Toy(), 2)
    for source, place in ((first, "claimed/eval.1/1"), (second, "retry/2")):
        target = Path(run.path) / place / source.name
        target.parent.mkdir(parents=True)
        source.rename(target)
    assert fsrun.snapshot(Toy(), hf, 3, limit=2) is None
    assert fsrun.snapshot(Toy(), hf, 3, limit=3) == "step_3"


def test_the_last_one_waits_for_room(run: fsrun.Run, hf: Path) -> None:
    first = taken(run, hf, Toy(), 1)
    done = threading.Event()

    def evaluate() -> None:
        done.wait(60)
        first.rename(Path(run.path) / "failed" / "step_1")

    evaluator = threading.Thread(target=evaluate)
    evaluator.start()
    assert fsrun.snapshot(Toy(), hf, 2, limit=1) is None
    done.set()
    assert fsrun.snapshot(Toy(), hf, 3, limit=1, last=True) == "step_3"
    evaluator.join()


def test_the_last_one_waits_no_longer_than_it_is_told(run: fsrun.Run, hf: Path) -> None:
    taken(run, hf, Toy(), 1)
    assert fsrun.snapshot(Toy(), hf, 2, limit=1, last=True, wait=0.01) is None


def test_a_full_disk_is_a_skipped_point(run: fsrun.Run, hf: Path, caplog: pytest.LogCaptureFixture) -> None:
    fs = FaultFS()
    fs.fail("log.write", match=".part-", error=errno.ENOSPC)
    live().fs = fs
    assert fsrun.snapshot(Toy(), hf, 1) == "step_1"
    run.flush(60)
    assert list(entry(run, "").iterdir()) == []
    assert os.listdir(hf) == []
    assert "No space left on device" in warnings_of(caplog)[0]
    assert scalars(run, "snapshot/skipped") == [(1, 1)]
    same(taken(run, hf, {"a": torch.ones(1)}, 2), {"a": torch.ones(1)})


@pytest.mark.parametrize("operation", ["mkdir", "append", "log.sync", "create", "rename", "sync_folder"])
def test_any_failed_step_is_a_skipped_point_and_the_next_one_stands(
    run: fsrun.Run, hf: Path, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    fs = FaultFS()
    fs.fail(operation, match=".fsrun-", error=errno.EIO)
    live().fs = fs
    fsrun.snapshot(Toy(), hf, 1)
    run.flush(60)
    assert list(entry(run, "").iterdir()) == []
    assert len(warnings_of(caplog)) == 1
    verify_plain(taken(run, hf, Toy(), 2))


def test_too_little_space_is_seen_before_anything_is_copied(
    run: fsrun.Run, hf: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fsrun.adapters.snapshots.folder.SessionFolder.free", lambda self: 1000)
    hf.mkdir()
    assert fsrun.snapshot({"a": torch.ones(1000)}, hf, 1) is None
    assert f"{hf} has 1000 bytes free" in warnings_of(caplog)[0]
    assert os.listdir(hf) == []


def test_too_little_memory_is_seen_before_it_is_taken(
    run: fsrun.Run, hf: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fsrun.adapters.snapshots.exporter.memory_left", lambda: 100)
    assert fsrun.snapshot({"a": torch.ones(1000)}, hf, 1) is None
    assert "4000 bytes of memory are needed, 100 are left" in warnings_of(caplog)[0]


def test_files_in_memory_are_counted_as_memory(
    run: fsrun.Run, hf: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fsrun.adapters.snapshots.room._is_in_memory", lambda path: True)
    left = [9_000]
    monkeypatch.setattr("fsrun.adapters.snapshots.exporter.memory_left", lambda: left[0])
    assert fsrun.snapshot({"a": torch.ones(1000)}, hf, 1) == "step_1"
    assert run.flush(60)
    left[0] = 4_050  # the copy has its memory, the file needs a little more than the tensor
    assert fsrun.snapshot({"a": torch.ones(1000)}, hf, 2) is None
    assert "bytes of memory are needed, 4050 are left" in warnings_of(caplog)[0]
    left[0] = 5_000
    assert fsrun.snapshot({"a": torch.ones(1000)}, hf, 3) == "step_3"


def test_snapshots_that_were_given_up_in_memory_stop_further_ones_with_a_remedy(
    run: fsrun.Run, hf: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fsrun.adapters.snapshots.room._is_in_memory", lambda path: True)
    for step in range(1, 4):
        assert fsrun.snapshot({"a": torch.ones(2)}, hf, step) == f"step_{step}"
        assert run.flush(60)
        os.rename(entry(run, f"step_{step}"), Path(run.path) / "failed" / f"step_{step}")
    assert fsrun.snapshot({"a": torch.ones(2)}, hf, 4) is None
    assert "3 snapshots that no evaluation took stand in" in warnings_of(caplog)[0]
    os.rename(Path(run.path) / "failed" / "step_1", Path(run.path) / "best" / "step_1")
    assert fsrun.snapshot({"a": torch.ones(2)}, hf, 5) == "step_5"


def test_metadata_that_changes_takes_no_other_memory(run: fsrun.Run, hf: Path) -> None:
    exporter = None
    for step in range(3):
        assert fsrun.snapshot({"a": torch.full((3,), float(step))}, hf, step, metadata={"step": step}, limit=9)
        assert run.flush(60)
        exporter = live().attached["snapshots"]
        assert len(exporter._made) == 1
        with safe_open(entry(run, f"step_{step}") / "model.safetensors", "pt") as file:
            assert file.metadata()["step"] == str(step)
            assert file.get_tensor("a").tolist() == [step] * 3


def test_what_a_signal_handler_raises_behind_the_copy_spoils_no_snapshot(
    run: fsrun.Run, hf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = live().writer.add

    def interrupted(*arguments: object) -> None:
        add(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(live().writer, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fsrun.snapshot({"a": torch.ones(3)}, hf, 1)
    monkeypatch.undo()
    assert fsrun.snapshot({"a": torch.zeros(3)}, hf, 2) == "step_2"
    assert run.flush(60)
    assert load_file(entry(run, "step_1") / "model.safetensors")["a"].tolist() == [1, 1, 1]
    assert load_file(entry(run, "step_2") / "model.safetensors")["a"].tolist() == [0, 0, 0]


def test_a_folder_that_does_not_answer_keeps_the_trainer_for_a_second_at_most(
    run: fsrun.Run, hf: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()
    monkeypatch.setattr("fsrun.adapters.snapshots.folder.SessionFolder.free", lambda self: gate.wait(60) and 1 << 40)
    monkeypatch.setattr("fsrun.adapters.snapshots.room.ANSWER_WAIT", 0.05)
    try:
        assert fsrun.snapshot(Toy(), hf, 1) is None
        assert fsrun.snapshot(Toy(), hf, 2) is None
        assert "did not answer within" in warnings_of(caplog)[0]
    finally:
        gate.set()


def test_while_one_is_written_the_next_is_skipped_where_memory_would_be_taken_twice(
    run: fsrun.Run, hf: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fsrun.adapters.snapshots.exporter._SPARE", 100)
    fs = FaultFS()
    gate = fs.hang("log.sync", match=".part-")
    live().fs = fs
    state = {"a": torch.ones(100)}
    assert fsrun.snapshot(state, hf, 1, limit=9) == "step_1"
    assert fsrun.snapshot(state, hf, 2, limit=9) is None
    assert "the last one is still being written" in warnings_of(caplog)[0]
    gate.set()
    assert run.flush(60)
    assert fsrun.snapshot(state, hf, 3, limit=9) == "step_3"


def test_memory_is_used_again_and_given_back_where_the_model_is_another(run: fsrun.Run, hf: Path) -> None:
    taken(run, hf, {"a": torch.ones(100)}, 1)
    exporter = live().attached["snapshots"]
    (first,) = exporter._made
    taken(run, hf, {"a": torch.zeros(100)}, 2)
    assert exporter._made == [first]
    taken(run, hf, {"b": torch.zeros(100)}, 3)
    (other,) = exporter._made
    assert other is not first


def test_memory_is_given_back_when_the_run_ends(tmp_path: Path, hf: Path) -> None:
    run = fsrun.init("p", run_id="r", root=tmp_path / "runs", capture=False)
    taken(run, hf, {"a": torch.ones(100)}, 1)
    copy = weakref.ref(live().attached["snapshots"]._made[0])
    run.finish()
    deadline = time.monotonic() + 60
    while copy() is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert copy() is None


def test_a_model_that_trains_on_is_never_torn(run: fsrun.Run, hf: Path) -> None:
    state = {f"w{i}": torch.zeros(1000) for i in range(20)}
    for step in range(1, 6):
        for tensor in state.values():
            tensor.fill_(step)
        assert fsrun.snapshot(state, hf, step, limit=99) is not None
    run.flush(60)
    for step in range(1, 6):
        found = load_file(entry(run, f"step_{step}") / "model.safetensors")
        assert all(bool((tensor == step).all()) for tensor in found.values())


def test_the_end_of_the_run_waits_for_the_snapshot(tmp_path: Path, hf: Path) -> None:
    run = fsrun.init("p", run_id="r", root=tmp_path / "runs", capture=False)
    fs = FaultFS()
    gate = fs.hang("log.sync", match=".part-")
    live().fs = fs
    name = fsrun.snapshot(Toy(), hf, 1)
    run.finish_queue()
    threading.Timer(0.2, gate.set).start()
    run.finish()
    assert sorted(os.listdir(Path(run.path) / "queue")) == ["FINISHED", name]


def test_a_queue_on_another_file_system_is_said_once(
    run: fsrun.Run, hf: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = os.stat
    hf.mkdir()

    def elsewhere(path: Any, *args: Any, **options: Any) -> Any:
        facts = real(path, *args, **options)
        if path == str(hf):
            return os.stat_result((*facts[:2], facts.st_dev + 1, *facts[3:10]))
        return facts

    monkeypatch.setattr("fsrun.adapters.snapshots.room.os.stat", elsewhere)
    for step in (1, 2):
        fsrun.snapshot(Toy(), hf, step)
    run.flush(60)
    (warning,) = warnings_of(caplog)
    assert "init(handover=...)" in warning


def test_a_forked_child_takes_none(run: fsrun.Run, hf: Path) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0 if fsrun.snapshot({"a": torch.ones(1)}, hf, 1, run=run) is None else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_signal_handler_may_take_one_amid_another(run: fsrun.Run, hf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsrun.adapters.snapshots import buffers

    real, inner = buffers.copy_into, list[Any]()

    def interrupted(views: Any, sources: Any) -> None:
        real(views, sources)
        if not inner:
            inner.append(None)
            inner[0] = fsrun.snapshot({"a": torch.zeros(3)}, hf, 2)

    monkeypatch.setattr(buffers, "copy_into", interrupted)
    state = {"a": torch.ones(3)}
    same(taken(run, hf, state, 1), state)
    assert inner == ["step_2"]
    same(entry(run, "step_2"), {"a": torch.zeros(3)})


def test_each_of_several_trainings_of_one_launcher_takes_its_own(
    tmp_path: Path, hf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    options: dict[str, Any] = {"root": tmp_path / "runs", "capture": False}
    with fsrun.init("p", run_id="quiet", **options) as quiet:
        assert fsrun.snapshot(Toy(), hf, 1) is None
        assert fsrun.snapshot(Toy(), hf, 1, run=quiet) is None
    with fsrun.init("p", run_id="own", ranks="alone", **options):
        assert fsrun.snapshot(Toy(), hf, 1) == "step_1"
