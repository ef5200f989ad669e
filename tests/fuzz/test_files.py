"""Logs, Parquet files and spills: cut, flipped, mixed up, of a size that is none."""

from __future__ import annotations

from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsrun.core.errors import FsrunError, InvalidError
from fsrun.daemon import status
from fsrun.disk import segments
from fsrun.disk.footer import KEY, Consumed, consumed_by, find_value
from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.logs import POINTS, LogReader, read_pieces
from fsrun.run import samples as run_samples
from fsrun.run.chain import measure_log
from fsrun.run.sampled import SamplesFile
from fsrun.run.spill import find_spills
from tests.fuzz.damage import BIG, TEXTS
from tests.fuzz.garbage import bounded, examples, raw, spoiled, verdict
from tests.support import build

FS = LocalFileSystem()
GOOD_LINES = b"".join(build.line(step, {"loss": 0.5, "acc é": "NaN"}, entry=f"a.{step}") for step in range(1, 40))
CONSUMED = Consumed(sources={"scalars/main.1.jsonl": 100}, tokens={"main.1": "00000001token"})
ROWS = {
    "job": ["main"] * 3, "tag": ["a", "a", "b"], "step": [1, 2, 1], "time": [1.0, 2.0, 1.0], "value": [0.5, 0.25, 1.0],
    "session": [1] * 3, "entry": [None, None, "x.1"],
}  # fmt: skip
DATA = segments.encode(pa.table(ROWS).cast(POINTS), CONSUMED).to_pybytes()
SAMPLES = run_samples.encode([{"prompt": "1+1", "answer": "2", "score": 1.0}, {"prompt": "x", "answer": None}])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


def points(path: Path, stop: int | None = None) -> tuple[list[dict[str, object]], LogReader]:
    log = LogReader("main", 1)
    tables = list(log.read(read_pieces(FS, str(path), 0, stop, 64)))
    return [row for table in tables for row in table.to_pylist()], log


@given(spoiled(GOOD_LINES * 3) | raw)
@examples(40)
def test_a_spoiled_log_gives_the_points_of_its_good_lines(folder: Path, data: bytes) -> None:
    path = folder / "main.1.jsonl"
    path.write_bytes(data)
    found, log = points(path)
    measured = measure_log(FS, str(path))
    assert measured.size <= len(data)
    assert (measured.hole is None) == (b"\0" not in data)
    assert repr(points(path, measured.size)[0]) == repr(found)
    whole = data[: measured.size].split(b"\n")
    good = {
        line["step"]
        for text in whole
        if text.startswith(b'{"step"') and isinstance(line := _loads(text), dict) and type(line.get("step")) is int
        and type(line.get("loss")) is float and abs(line["step"]) < 2**63 and isinstance(line.get("entry", ""), str)
    }  # fmt: skip
    assert good <= {row["step"] for row in found if row["tag"] == "loss"}
    assert log.skipped >= len(log.faults) or log.skipped >= LogReader.MAX_FAULTS


def _loads(text: bytes) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def test_a_log_of_a_size_that_is_none_and_a_line_without_an_end_cost_time_alone(folder: Path) -> None:
    path = folder / "big.jsonl"
    with path.open("wb") as file:
        file.write(GOOD_LINES)
        file.truncate(BIG)
    with bounded(32 << 20):
        assert len(points(path)[0]) == 78
        assert measure_log(FS, str(path)).size == len(GOOD_LINES)
    path.write_bytes(GOOD_LINES + b"x" * (32 << 20))
    assert len(points(path)[0]) == 78


@given(spoiled(DATA) | raw)
@examples(40)
def test_a_spoiled_data_parquet_is_read_or_is_none(folder: Path, data: bytes) -> None:
    (folder / "data.parquet").write_bytes(data)
    verdict(lambda: consumed_by(FS, str(folder), {"main.1": "00000001token"}))
    verdict(lambda: find_value(data, KEY))
    segment = segments.open_segment(FS, str(folder))
    if segment is not None:
        try:
            for tags in (None, frozenset({"a"})):
                table = verdict(lambda tags=tags: segment.read(tags), pa.ArrowException, OSError, ValueError)  # type: ignore[misc]
                assert table is None or table.schema == POINTS  # type: ignore[attr-defined]
        finally:
            segment.close()


def test_the_footer_of_a_good_file_holds_its_metadata() -> None:
    footer = DATA[-8 - int.from_bytes(DATA[-8:-4], "little") : -8]
    assert Consumed.decode(find_value(footer, KEY)) == CONSUMED


@given(st.data())
@examples(30)
def test_spoiled_samples_are_told_from_good_ones(folder: Path, data: st.DataObject) -> None:
    assert SAMPLES is not None
    path = folder / "x.1.samples.parquet"
    written = data.draw(spoiled(SAMPLES.data) | st.just(SAMPLES.data))
    path.write_bytes(written)
    digest = SAMPLES.sha256 if data.draw(st.booleans()) else None
    file = SamplesFile("x", 1, 1, "done", 2, len(SAMPLES.data), str(path), FS, digest)
    table = verdict(file.read, InvalidError, OSError)
    if written == SAMPLES.data:
        assert table is not None
    elif digest is not None:
        assert table is None


NOTE = b'{"run_dir": "/x", "job": "main", "session": 1, "token": "00000001token", "piece": 0}\n'


@given(spoiled(NOTE) | raw)
@examples(20)
def test_a_spoiled_note_of_a_spill_hides_no_spill(folder: Path, data: bytes) -> None:
    run = build.run(folder / "runs")
    run.lock("main", 1)
    spills = folder / "spills"
    spills.mkdir(exist_ok=True)
    (spills / "big.main.1.00000001token.s0.jsonl").write_bytes(b"x\n")
    (spills / "big.main.1.00000001token.s0.json").write_bytes(data)
    found = find_spills(str(run.path), fs=FS, folder=str(spills))
    assert [(one.job, one.session, one.piece) for one in found] == [("main", 1, 0)]


@given(data=raw)
@examples(40)
def test_a_spoiled_status_of_a_daemon_is_passed_over(folder: Path, data: bytes) -> None:
    place = folder / "daemons"
    place.mkdir(exist_ok=True)
    (place / "a.status.json").write_bytes(data)
    for found in verdict(lambda: list(status.read_all(str(place))), FsrunError) or ():  # type: ignore[attr-defined]
        assert isinstance(found, dict)
    verdict(lambda: status.running(str(place), "/x"))


def test_each_awkward_text_in_place_of_a_log_is_read(folder: Path) -> None:
    for number, text in enumerate(TEXTS):
        path = folder / f"{number}.jsonl"
        path.write_bytes(text)
        verdict(lambda path=path: points(path))  # type: ignore[misc]
