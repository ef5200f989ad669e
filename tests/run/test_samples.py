"""Samples of an evaluation: kept beside the outcome that names them, never instead of a score, read back whole."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsrun.core.errors import HeldError, UsageError
from fsrun.disk.fs import FileSystem
from fsrun.run import sampled, samples
from fsrun.run.entries import Evaluation, entries
from fsrun.run.entry import Entry
from fsrun.run.reader import RunReader
from tests.support.clock import FakeClock
from tests.support.fs import FaultFS
from tests.support.queue import Context, end, evaluator, make_run, outcomes, put_plain

pytestmark = pytest.mark.unit
ROWS = [
    {"set": "sums", "row": 0, "sample": 0, "prompt": "1+1", "answer": "2", "label": "2", "score": 1, "correct": True},
    {"set": "sums", "row": 1, "sample": 0, "prompt": "2+2", "answer": "5", "label": "4", "score": 0, "correct": False},
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


def claim(run: Path, fs: FileSystem | None = None, **options: Any) -> tuple[Context, Evaluation, Entry]:
    context = evaluator(run, fs, **options)
    evaluation = entries(context, clock=FakeClock(), once=True)
    entry = next(evaluation)
    vars(entry)["loop"] = evaluation  # A loop that is dropped gives its entry back.
    return context, evaluation, entry


def stored(run: Path) -> list[str]:
    return sorted(p.name for p in (run / "evals").iterdir() if p.name.endswith(".parquet"))


def test_samples_stand_beside_the_outcome_that_names_them_by_size_and_digest(run: Path) -> None:
    put_plain(run, "x_7.pt")
    context, _, entry = claim(run)
    assert entry.done({"acc": 0.5}, samples=ROWS)
    assert stored(run) == ["x_7.pt.1.samples.parquet"]
    data = (run / "evals" / "x_7.pt.1.samples.parquet").read_bytes()
    named = outcomes(run)["x_7.pt", 1].samples
    assert named == {"rows": 2, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert context.warnings == []
    assert [p.name for p in (run / "evals").iterdir() if p.name.startswith(".")] == []


def test_samples_are_read_back_with_entry_attempt_and_step(run: Path) -> None:
    put_plain(run, "x_7.pt")
    claim(run)[2].done({"acc": 0.5}, samples=ROWS)
    table = RunReader(str(run)).samples()
    assert table.to_pylist() == [
        {"entry": "x_7.pt", "attempt": 1, "step": 7} | row | {"score": float(row["score"])} for row in ROWS
    ]
    assert table.schema.field("score").type == pa.float64()


@pytest.mark.parametrize("kind", ["rows", "table", "frame"])
def test_samples_may_be_rows_an_arrow_table_or_a_frame(run: Path, kind: str) -> None:
    import pandas as pd

    made = {"rows": ROWS, "table": pa.Table.from_pylist(ROWS), "frame": pd.DataFrame(ROWS)}[kind]
    put_plain(run, "x_7.pt")
    claim(run)[2].done({"acc": 0.5}, samples=made)
    assert RunReader(str(run)).samples().column("answer").to_pylist() == ["2", "5"]


def test_what_identifies_a_sample_is_added_where_it_is_missing_and_unknown_columns_are_kept() -> None:
    made = samples.encode([{"prompt": "a", "mood": "good"}, {"prompt": "b", "mood": "bad"}])
    assert made is not None
    table = pq.read_table(pa.BufferReader(made.data))
    assert table.column_names == ["set", "row", "sample", "prompt", "mood"]
    assert table.select(["set", "row", "sample"]).to_pylist() == [
        {"set": "", "row": 0, "sample": 0},
        {"set": "", "row": 1, "sample": 0},
    ]


def test_a_column_of_nulls_has_the_type_that_its_name_says() -> None:
    made = samples.encode([{"score": None, "correct": None, "extracted": None, "prompt_tokens": None}])
    assert made is not None
    schema = pq.read_schema(pa.BufferReader(made.data))
    assert [schema.field(n).type for n in ("score", "correct", "extracted", "prompt_tokens")] == [
        pa.float64(), pa.bool_(), pa.string(), pa.int64(),
    ]  # fmt: skip


def test_a_known_column_that_holds_something_else_is_kept_as_it_came() -> None:
    made = samples.encode([{"score": "good"}, {"score": "bad"}])
    assert made is not None
    assert pq.read_table(pa.BufferReader(made.data)).column("score").to_pylist() == ["good", "bad"]


def test_the_bytes_of_two_attempts_with_the_same_answers_differ() -> None:
    one, two = samples.encode(ROWS), samples.encode(ROWS)
    assert one is not None
    assert two is not None
    assert one.sha256 != two.sha256


@pytest.mark.parametrize("nothing", [None, [], pa.table({"prompt": pa.array([], pa.string())})])
def test_no_samples_are_no_file(run: Path, nothing: Any) -> None:
    put_plain(run, "x_7.pt")
    context, _, entry = claim(run)
    assert entry.done({"acc": 0.5}, samples=nothing)
    assert stored(run) == []
    assert outcomes(run)["x_7.pt", 1].samples is None
    assert context.warnings == []


def test_of_too_many_samples_the_first_rows_of_each_set_are_kept(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MAX_BYTES", 20_000)
    rows = [{"set": name, "row": i, "prompt": "x" * 100} for name in ("a", "b") for i in range(200)]
    put_plain(run, "x_7.pt")
    context, _, entry = claim(run)
    assert entry.done({"acc": 0.5}, samples=rows)
    table = RunReader(str(run)).samples()
    kept = {name: [r["row"] for r in table.to_pylist() if r["set"] == name] for name in ("a", "b")}
    assert kept["a"] == kept["b"] == list(range(len(kept["a"])))
    assert 10 < len(kept["a"]) < 200
    assert len(context.warnings) == 1
    assert "of 400 samples are kept" in context.warnings[0]


# A score is never lost


@pytest.mark.parametrize("wrong", ["text", 7, [1, "two"], [{}], object()])
def test_samples_that_are_none_cost_a_warning_and_not_the_score(run: Path, wrong: Any) -> None:
    put_plain(run, "x_7.pt")
    context, _, entry = claim(run)
    assert entry.done({"acc": 0.5}, samples=wrong)
    assert outcomes(run)["x_7.pt", 1].samples is None
    assert outcomes(run)["x_7.pt", 1].scores == {"acc": 0.5}
    assert ["not kept" in w for w in context.warnings] == [True]


def test_a_folder_that_takes_no_large_file_costs_the_samples_alone(run: Path) -> None:
    put_plain(run, "x_7.pt")
    fs = FaultFS()
    context, evaluation, entry = claim(run, fs)
    clock = evaluation._clock
    before = clock.monotonic()
    fs.fail("create", match="evals/", error=errno.ENOSPC, times=1)
    assert entry.done({"acc": 0.5}, samples=ROWS)
    assert clock.monotonic() == before
    assert stored(run) == []
    assert outcomes(run)["x_7.pt", 1].samples is None
    assert context.warnings == ["samples of x_7.pt (attempt 1) are not kept: No space left on device"]


def test_an_error_that_passes_costs_nothing(run: Path) -> None:
    put_plain(run, "x_7.pt")
    fs = FaultFS()
    context, _, entry = claim(run, fs)
    fs.fail("create", match="evals/", error=errno.EIO, times=2)
    assert entry.done({"acc": 0.5}, samples=ROWS)
    assert stored(run) == ["x_7.pt.1.samples.parquet"]
    assert context.warnings == []


@pytest.mark.parametrize("error", [errno.EIO, errno.EEXIST])
def test_a_lost_reply_to_the_publication_is_found_out(run: Path, error: int) -> None:
    put_plain(run, "x_7.pt")
    fs = FaultFS()
    context, _, entry = claim(run, fs)
    fs.fail("link", match="samples.parquet", error=error, times=1, happened=True)
    assert entry.done({"acc": 0.5}, samples=ROWS)
    assert RunReader(str(run)).samples().num_rows == 2
    assert context.warnings == []


def test_where_links_are_refused_samples_are_created_under_their_name(run: Path) -> None:
    put_plain(run, "x_7.pt")
    fs = FaultFS()
    context, _, entry = claim(run, fs)
    fs.fail("link", match="evals/", error=errno.EPERM, times=1 << 30)
    # The first outcome fails, so that the whole is tried again: the samples stand by then.
    fs.fail("create", match="x_7.pt.1.json", error=errno.EIO, times=1)
    assert entry.done({"acc": 0.5}, samples=ROWS)
    assert RunReader(str(run)).samples().num_rows == 2
    assert context.warnings == []


def test_a_foreign_file_of_that_name_is_left_alone_and_never_named(run: Path) -> None:
    put_plain(run, "x_7.pt")
    (run / "evals" / "x_7.pt.1.samples.parquet").write_bytes(b"somebody's")
    context, _, entry = claim(run)
    assert entry.done({"acc": 0.5}, samples=ROWS)
    assert outcomes(run)["x_7.pt", 1].samples is None
    assert (run / "evals" / "x_7.pt.1.samples.parquet").read_bytes() == b"somebody's"
    assert ["another file has the name" in w for w in context.warnings] == [True]
    assert RunReader(str(run)).samples().num_rows == 0


# Whose they are


def test_samples_of_an_attempt_that_another_has_ended_are_not_taken_for_it(run: Path) -> None:
    put_plain(run, "x_7.pt")
    zombie, _, entry = claim(run)
    end(run, "eval", 1, "crashed")
    _, _, again = claim(run, job="second")
    assert (again.name, again.attempt) == ("x_7.pt", 2)
    zombie.session.fenced = True
    assert not entry.done({"acc": 0.1}, samples=ROWS[:1])
    assert again.done({"acc": 0.5}, samples=ROWS)
    assert outcomes(run)["x_7.pt", 1].state == "lost"
    assert outcomes(run)["x_7.pt", 1].samples is None
    assert stored(run) == ["x_7.pt.2.samples.parquet"]


def test_samples_of_an_adopted_claim_stand_under_its_new_attempt(run: Path) -> None:
    put_plain(run, "x_7.pt")
    context, evaluation, entry = claim(run)
    context.session.go_on()
    evaluation._attempts.adopt()
    assert entry.done({"acc": 0.5}, samples=ROWS)
    assert stored(run) == ["x_7.pt.2.samples.parquet"]
    assert outcomes(run)["x_7.pt", 2].samples is not None
    assert outcomes(run)["x_7.pt", 1].samples is None


def test_an_adoption_between_staging_and_the_outcome_moves_the_samples_along(run: Path) -> None:
    put_plain(run, "x_7.pt")
    fs = FaultFS()
    context, evaluation, entry = claim(run, fs)

    def adopt(_: Any) -> None:
        context.session.go_on()
        evaluation._attempts.adopt()

    fs.on("create", match="evals/.tmp-", after=adopt, times=1)
    assert entry.done({"acc": 0.5}, samples=ROWS)
    assert stored(run) == ["x_7.pt.2.samples.parquet"]
    assert outcomes(run)["x_7.pt", 2].samples is not None


def test_two_files_of_one_name_have_samples_of_their_own(run: Path) -> None:
    put_plain(run, "x_7.pt", b"1")
    _, _, first = claim(run, job="first")
    put_plain(run, "x_7.pt", b"2")
    context, _, second = claim(run, job="second")
    assert second.name == "x_7.pt"
    assert first.done({"acc": 0.1}, samples=ROWS[:1])
    assert second.done({"acc": 0.2}, samples=ROWS)
    assert second.name == "x_7~2.pt"
    assert stored(run) == ["x_7.pt.1.samples.parquet", "x_7~2.pt.1.samples.parquet"]
    assert RunReader(str(run)).samples("x_7~2.pt").num_rows == 2
    assert context.warnings == []


def test_samples_that_were_put_before_an_outcome_of_another_are_removed_by_who_put_them(run: Path) -> None:
    put_plain(run, "x_7.pt", b"1")
    _, _, first = claim(run, job="first")
    put_plain(run, "x_7.pt", b"2")
    fs = FaultFS()
    _, _, second = claim(run, fs, job="second")
    fs.on("link", match="x_7.pt.1.samples.parquet", after=lambda _: first.done({"acc": 0.1}), times=1)
    assert second.done({"acc": 0.2}, samples=ROWS)
    assert stored(run) == ["x_7~2.pt.1.samples.parquet"]
    assert outcomes(run)["x_7.pt", 1].samples is None


def test_a_failed_attempt_may_keep_its_samples(run: Path) -> None:
    put_plain(run, "x_7.pt")
    entry = claim(run)[2]
    entry.fail("a third of the prompts got no answer", samples=ROWS)
    reader = RunReader(str(run))
    assert reader.samples().num_rows == 0
    assert reader.samples("x_7.pt", attempt=1).num_rows == 2
    assert [(f.entry, f.attempt, f.state, f.rows) for f in reader.sampled()] == [("x_7.pt", 1, "failed", 2)]


def test_content_that_changed_takes_the_samples_with_its_scores(run: Path) -> None:
    put_plain(run, "x_7.pt")
    _, _, entry = claim(run)
    Path(entry.path).write_bytes(b"longer than it was")
    assert not entry.done({"acc": 0.5}, samples=ROWS)
    assert stored(run) == []


# Points of the outcome's own facts


def test_a_report_makes_points_of_the_very_facts_of_the_outcome(run: Path) -> None:
    put_plain(run, "x_7.pt")
    context, evaluation, entry = claim(run)
    context.main = (1, "running", 30)
    evaluation._clock.sleep(12.5)
    entry.done({"eval/acc": 0.5}, report=True)
    outcome = outcomes(run)["x_7.pt", 1]
    assert outcome.scores == {"eval/lag_steps": 23, "eval/duration_s": outcome.duration_s, "eval/acc": 0.5}
    assert outcome.duration_s == 12.5
    assert context.lines == [("x_7.pt", 1, outcome.scores, 7)]


def test_a_report_has_no_point_of_what_is_not_known(run: Path) -> None:
    put_plain(run, "x_7.pt")
    _, _, entry = claim(run)
    entry.done({"eval/acc": 0.5}, report=True)
    assert sorted(outcomes(run)["x_7.pt", 1].scores) == ["eval/acc", "eval/duration_s"]


# Reading


def test_samples_of_one_step_or_entry_alone_are_read(run: Path) -> None:
    for step in (1, 2):
        put_plain(run, f"x_{step}.pt")
    context = evaluator(run)
    for entry in entries(context, clock=FakeClock(), once=True):
        entry.done({"acc": 0.5}, samples=[{"prompt": entry.name}])
    reader = RunReader(str(run))
    assert reader.samples().column("prompt").to_pylist() == ["x_1.pt", "x_2.pt"]
    assert reader.samples(step=2).column("prompt").to_pylist() == ["x_2.pt"]
    assert reader.samples("x_1.pt").column("prompt").to_pylist() == ["x_1.pt"]
    assert reader.samples("x_3.pt").num_rows == 0


def test_columns_that_differ_between_evaluations_are_joined(run: Path) -> None:
    made = {1: [{"mood": 1, "only": "a"}], 2: [{"mood": "good"}]}
    for step in made:
        put_plain(run, f"x_{step}.pt")
    for entry in entries(evaluator(run), clock=FakeClock(), once=True):
        entry.done({"acc": 0.5}, samples=made[entry.step or 0])
    table = RunReader(str(run)).samples()
    assert table.column("mood").to_pylist() == ["1", "good"]
    assert table.column("only").to_pylist() == ["a", None]


def test_samples_that_are_not_what_the_outcome_names_are_left_out_and_said(run: Path) -> None:
    put_plain(run, "x_7.pt")
    claim(run)[2].done({"acc": 0.5}, samples=ROWS)
    path = run / "evals" / "x_7.pt.1.samples.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    reader = RunReader(str(run))
    assert reader.samples().num_rows == 0
    assert [(p.path, "another digest" in p.reason) for p in reader.problems] == [
        ("evals/x_7.pt.1.samples.parquet", True)
    ]


def test_a_pipe_in_place_of_samples_hides_no_others(run: Path) -> None:
    for name in ("x_7.pt", "x_8.pt"):
        put_plain(run, name)
        claim(run)[2].done({"acc": 0.5}, samples=ROWS)
    path = run / "evals" / "x_7.pt.1.samples.parquet"
    path.unlink()
    os.mkfifo(path)
    reader = RunReader(str(run))
    assert set(reader.samples()["entry"].to_pylist()) == {"x_8.pt"}
    assert [p.path for p in reader.problems] == ["evals/x_7.pt.1.samples.parquet"]


def test_more_samples_than_fit_are_refused_with_the_way_out(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled, "MAX_BYTES", 1000)
    put_plain(run, "x_7.pt")
    claim(run)[2].done({"acc": 0.5}, samples=ROWS)
    with pytest.raises(UsageError, match="sampled"):
        RunReader(str(run)).samples()
    assert [f.read().num_rows for f in RunReader(str(run)).sampled()] == [2]


def test_an_outcome_of_a_program_that_keeps_no_digest_is_believed_by_size(run: Path) -> None:
    put_plain(run, "x_7.pt")
    claim(run)[2].done({"acc": 0.5}, samples=ROWS)
    path = run / "evals" / "x_7.pt.1.json"
    record = json.loads(path.read_text())
    del record["samples"]["sha256"]
    path.write_text(json.dumps(record) + "\n")
    assert RunReader(str(run)).samples().num_rows == 2


def test_a_fenced_evaluator_keeps_what_stands(run: Path) -> None:
    put_plain(run, "x_7.pt")
    context, _, entry = claim(run)
    context.session.fenced = True
    entry.done({"acc": 0.5}, samples=ROWS)
    with pytest.raises(HeldError):
        context.session.require_protected()
    assert RunReader(str(run)).samples().num_rows == 2
