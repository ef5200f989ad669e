"""``check`` on samples: what an outcome names is compared, what none names can go, what is on its way stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsrun.run.check import Finding, apply_fixes, check_run
from fsrun.run.entries import entries
from tests.support.clock import FakeClock
from tests.support.queue import end, evaluator, make_run, put_plain

pytestmark = pytest.mark.unit
FILE = "evals/x_7.pt.1.samples.parquet"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a done entry that has samples; all jobs have ended."""
    run = make_run(tmp_path / "run")
    put_plain(run, "x_7.pt")
    for entry in entries(evaluator(run), clock=FakeClock(), once=True):
        entry.done({"eval/acc": 1.0}, samples=[{"prompt": "1+1", "answer": "2"}])
    end(run, "eval", 1)
    end(run, "main", 1)
    return run


def about_samples(run: Path) -> list[Finding]:
    return [finding for finding in check_run(str(run)) if "samples" in finding.file]


def test_samples_as_their_outcome_names_them_are_no_finding(run: Path) -> None:
    assert about_samples(run) == []


@pytest.mark.parametrize(("cut", "says"), [(4, "bytes, the outcome says"), (0, "another digest")])
def test_samples_that_are_not_what_the_outcome_names_are_an_error(run: Path, cut: int, says: str) -> None:
    data = bytearray((run / FILE).read_bytes())
    data[-20] ^= 1
    (run / FILE).write_bytes(bytes(data[: len(data) - cut]))
    (finding,) = about_samples(run)
    assert (finding.file, finding.severity, finding.fix) == (FILE, "error", None)
    assert says in finding.message


def test_samples_that_somebody_removed_are_a_note(run: Path) -> None:
    (run / FILE).unlink()
    (finding,) = about_samples(run)
    assert (finding.file, finding.severity) == (FILE, "note")


def test_samples_whose_outcome_names_none_are_removed_by_a_repair(run: Path) -> None:
    (run / FILE).replace(run / "evals" / "y.pt.1.samples.parquet")
    (run / FILE.replace("samples.parquet", "json")).replace(run / "kept.json")
    text = (run / "kept.json").read_text()
    (run / "evals" / "y.pt.1.json").write_text(text.replace('"x_7.pt"', '"y.pt"').replace('"samples": {', '"old": {'))
    (finding,) = about_samples(run)
    assert (finding.file, finding.severity) == ("evals/y.pt.1.samples.parquet", "warning")
    assert finding.fix is not None
    assert [problem for _, problem in apply_fixes([finding])] == [None]
    assert about_samples(run) == []
    assert not (run / "evals" / "y.pt.1.samples.parquet").exists()


def test_samples_of_an_attempt_without_an_outcome_are_on_their_way_while_a_job_lives(tmp_path: Path) -> None:
    run = make_run(tmp_path / "live")
    evaluator(run)
    (run / FILE).write_bytes(b"x")
    assert about_samples(run) == []
    end(run, "eval", 1)
    end(run, "main", 1)
    (finding,) = about_samples(run)
    assert (finding.severity, finding.fix) == ("note", None)
