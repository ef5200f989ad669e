"""Paths: what is built parses back, what is foreign does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsrun.core import ids, layout
from fsrun.core.layout import JobFile

jobs = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,20}", fullmatch=True)
numbers = st.integers(1, 10**15)
counts = st.integers(0, 10**15)
tokens = st.from_regex(r"[0-9a-z]{8,32}", fullmatch=True)
entries = st.text(min_size=1, max_size=50).filter(ids.is_entry)


@given(jobs, numbers, tokens, counts)
def test_every_name_of_jobs_parses_back(job: str, n: int, token: str, c: int) -> None:
    assert layout.parse_job_file(layout.lock_name(job, n)) == JobFile("lock", job, n)
    assert layout.parse_job_file(layout.end_name(job, n)) == JobFile("end", job, n)
    assert layout.parse_job_file(layout.beat_name(job, n, token, c)) == JobFile("beat", job, n, token, c)
    assert layout.parse_job_file(layout.taken_name(job, n, token, c)) == JobFile("taken", job, n, token, c)
    if job != ids.MAIN:
        assert layout.parse_job_file(layout.job_view(job).removeprefix("jobs/")) == JobFile("view", job)


@given(jobs, numbers, counts)
def test_every_log_name_parses_back(job: str, n: int, i: int) -> None:
    assert layout.parse_log_name(layout.scalars_name(job, n)) == (job, n, None)
    assert layout.parse_log_name(layout.spill_name(job, n, i)) == (job, n, i)


@given(entries, numbers)
def test_every_outcome_parses_back(entry: str, k: int) -> None:
    assert layout.parse_outcome_name(layout.outcome_name(entry, k)) == (entry, k)
    assert layout.parse_outcome_key(layout.outcome_key(entry, k)) == (entry, k)
    assert layout.parse_meta_name(layout.meta_name(entry)) == entry


@given(entries, numbers)
def test_samples_parse_back_and_are_never_taken_for_an_outcome(entry: str, k: int) -> None:
    name = layout.samples_name(entry, k)
    assert layout.parse_samples_name(name) == (entry, k)
    assert layout.parse_outcome_name(name) is None
    assert layout.parse_samples_name(layout.outcome_name(entry, k)) is None
    assert layout.parse_samples_name(layout.samples_name(name, 3)) == (name, 3)
    assert layout.parse_outcome_name(layout.outcome_name(name, 3)) == (name, 3)


@pytest.mark.parametrize(
    "name",
    ["x", "x.samples.parquet", "x.0.samples.parquet", ".1.samples.parquet", "x.01.samples.parquet", "x.1.parquet"],
)
def test_a_foreign_name_of_samples_is_unknown(name: str) -> None:
    assert layout.parse_samples_name(name) is None


def test_the_longest_name_of_samples_fits_a_file_name() -> None:
    assert len(layout.samples_name("e" * ids.MAX_ENTRY, 10**18 - 1)) <= 255


@given(jobs, numbers)
def test_claims_and_temporaries_name_their_session(job: str, n: int) -> None:
    assert layout.parse_claim_folder(layout.claim_folder(job, n)) == (job, n)
    temp = layout.temp_name(job, n, "00ff")
    assert layout.is_temp(temp)
    assert layout.parse_temp_name(temp) == (job, n)
    assert not ids.is_entry(temp)


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "main", "main.lock", "main.0.lock", "main.01.lock", "main.1.lock.x", "main.1.LOCK", "Main.1.lock",
        "main.1.abcdefgh.beat", "main.1.abcdefgh.beat.01", "main.1.short.beat.1", "main.1.abcdefgh.heart.1",
        "main.0.abcdefgh.beat.1", ".nfs00001", ".tmp-main.1-ff", "main.1.json", "main.1.2.3.4.5",
    ],
)  # fmt: skip
def test_a_foreign_name_of_jobs_is_unknown(name: str) -> None:
    assert layout.parse_job_file(name) is None


@pytest.mark.parametrize(
    "name",
    ["main.jsonl", "main.0.jsonl", "main.1.x1.jsonl", "main.1.s.jsonl", "main.1.json", "M.1.jsonl", "a.b.c.d.jsonl"],
)
def test_a_foreign_log_name_is_unknown(name: str) -> None:
    assert layout.parse_log_name(name) is None


@pytest.mark.parametrize(
    "name", ["x", "x.json", "x.0.json", ".1.json", ".x.1.json", "x.tmp.1.json", "x.1.samples.parquet"]
)
def test_a_foreign_outcome_name_is_unknown(name: str) -> None:
    assert layout.parse_outcome_name(name) is None


@pytest.mark.parametrize("name", ["x", ".json", "FINISHED.json"])
def test_a_foreign_meta_name_is_unknown(name: str) -> None:
    assert layout.parse_meta_name(name) is None


@pytest.mark.parametrize("name", ["eval", "eval.0", ".1", "Eval.1", "eval.1.2"])
def test_a_foreign_claim_folder_is_unknown(name: str) -> None:
    assert layout.parse_claim_folder(name) is None


@pytest.mark.parametrize("name", ["x.pt", ".tmp-", ".tmp-main.1", ".tmp-main-ff", ".tmp-.1-ff"])
def test_a_foreign_temporary_has_no_owner(name: str) -> None:
    assert layout.parse_temp_name(name) is None


def test_paths_read_as_in_the_protocol() -> None:
    assert layout.job_view("main") == "run.json"
    assert layout.console_name("eval") == "output.eval.log"
    assert layout.console_name("eval", 3) == "output.eval.3.log"
    assert layout.claim_path("eval", 3, 2, "x.pt") == "claimed/eval.3/2/x.pt"
    assert layout.waiting_path(1, "x.pt") == "queue/x.pt"
    assert layout.waiting_path(2, "x.pt") == "retry/2/x.pt"
    assert layout.join("a", "b") == "a/b"


@given(jobs, numbers)
def test_the_name_of_an_environment_round_trips(job: str, n: int) -> None:
    assert layout.parse_environment_name(layout.environment_name(job, n)) == (job, n)
    for other in (
        layout.diff_name(job, n),
        layout.packages_name(job, n),
        layout.console_name(job, n),
        "environment.json",
    ):
        assert layout.parse_environment_name(other) is None


def test_a_marker_names_the_folders_of_its_run() -> None:
    assert layout.marker_name("speech", "big") == "speech@big"
    assert layout.parse_marker_name("speech@big") == ("speech", "big")
    assert layout.marker_name("p" * 128, "r" * 128) is None
    for name in ("speech", "speech@", "@big", "a@b@c", "a b@c", ".tmp@x"):
        assert layout.parse_marker_name(name) is None


@given(jobs, numbers, counts, tokens, st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,30}", fullmatch=True))
def test_every_spill_parses_back_from_the_right(job: str, n: int, piece: int, token: str, run: str) -> None:
    name = layout.spill_file(run, job, n, token, piece)
    assert layout.parse_spill_file(name) == (run, job, n, token, piece)
    assert layout.spill_note(name) == name.removesuffix(".jsonl") + ".json"


@pytest.mark.parametrize(
    "name",
    ["x.jsonl", "r.main.1.abcdefgh.s0.json", "r.Main.1.abcdefgh.s0.jsonl", "r.main.1.short.s0.jsonl",
     "r.main.0.abcdefgh.s0.jsonl", "r.main.1.abcdefgh.x0.jsonl", "r.main.1.abcdefgh.s.jsonl"],
)  # fmt: skip
def test_a_foreign_name_of_the_spill_folder_is_unknown(name: str) -> None:
    assert layout.parse_spill_file(name) is None


def test_the_spill_folder_is_one_for_each_user() -> None:
    assert layout.spill_folder("1000") == "fsrun-spill-1000"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("main.01.lock", True),
        ("x.end", True),
        ("a.beat.1", True),
        ("a.taken.b", True),
        ("main.json", False),
        (".tmp.lock", False),
    ],
)
def test_a_name_that_was_meant_for_the_protocol_is_told(name: str, meant: bool) -> None:
    assert layout.looks_like_job_file(name) is meant


@given(jobs, numbers)
def test_every_console_parses_back(job: str, n: int) -> None:
    assert layout.parse_console_name(layout.console_name(job, n), job) == n
    assert layout.parse_console_name(layout.console_name(job), job) is None
    assert layout.parse_console_name("notes.txt", job) is None
