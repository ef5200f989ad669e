"""Records: strict about what the rules need, silent about the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsrun.core import records
from fsrun.core.errors import InvalidError
from fsrun.core.records import BestRule, End, Holder, Lock, Meta, Outcome

LOCK = {"protocol": "1.0", "job": "main", "session": 1, "token": "abcdefgh", "timeout": 30.0}


def test_unknown_keys_are_kept_and_written_again() -> None:
    unknown = {"colour": {"a": 1}, "extra": 2, "KIND": 3}
    lock = Lock.from_json(LOCK | unknown)
    assert lock.extra == unknown
    assert unknown.items() <= lock.to_json().items()


def test_missing_optional_keys_take_their_defaults() -> None:
    lock = Lock.from_json(LOCK)
    assert (lock.fence, lock.config, lock.continues, lock.must_understand) == (None, {}, False, [])


@pytest.mark.parametrize("key", ["job", "session", "token", "timeout"])
def test_a_missing_key_that_the_rules_need_is_named(key: str) -> None:
    with pytest.raises(InvalidError, match=f"lock: the key '{key}' is missing"):
        Lock.from_json({k: v for k, v in LOCK.items() if k != key})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("session", "1"), ("session", True), ("session", None), ("timeout", "30"), ("fence", {"a": -1}),
        ("fence", {"a": True}), ("fence", {"a": 1.5}),
        ("fence", {"a": "x"}), ("fence", [1]), ("config", None), ("must_understand", "x"), ("must_understand", [1]),
        ("continues", 1), ("project", 7), ("hands_over", "yes"),
    ],
)  # fmt: skip
def test_a_key_of_the_wrong_type_is_named(key: str, value: object) -> None:
    with pytest.raises(InvalidError, match=f"lock: the key '{key}' has the wrong type"):
        Lock.from_json(LOCK | {key: value})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (End, {"job": "main", "session": 1, "status": "stopped"}),
        (Outcome, {"entry": "x", "attempt": 1, "state": "great", "job": "eval", "session": 1}),
        (Meta, {"entry": "x", "kind": "socket"}),
        (Meta, {"entry": "x", "kind": "file", "files": ["x"]}),
        (BestRule, {"mode": "best", "tag": "x"}),
    ],
)
def test_a_word_outside_the_list_is_refused(kind: type[records.Record], value: dict[str, object]) -> None:
    with pytest.raises(InvalidError):
        kind.from_json(value)


def test_a_whole_number_may_be_written_with_a_point() -> None:
    outcome = {"entry": "x", "attempt": 1.0, "state": "done", "job": "eval", "session": 1, "step": 100.0, "time": 7}
    read = Outcome.from_json(outcome)
    assert (read.attempt, read.step, read.time) == (1, 100, 7)
    assert type(read.step) is int
    assert Lock.from_json(LOCK | {"fence": {"scalars/main.1.jsonl": 12.0}}).fence == {"scalars/main.1.jsonl": 12}


@pytest.mark.parametrize("step", [1.5, float("inf"), float("nan"), True, "1"])
def test_what_is_no_whole_number_is_refused(step: object) -> None:
    with pytest.raises(InvalidError):
        Outcome.from_json({"entry": "x", "attempt": 1, "state": "done", "job": "e", "session": 1, "step": step})


def test_a_holder_reads_as_a_person_would_say_it() -> None:
    assert str(Holder(host="node7", pid=4711)) == "process 4711 on node7"


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("1.0", 1),
        ("12.3", 12),
        ("2", 2),
        ("x", None),
        ("", None),
        (None, None),
        (1.0, None),
        ("-1.0", None),
        ("²", None),
    ],
)
def test_the_major_version(value: object, number: int | None) -> None:
    assert records.major(value) == number


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_764_456_878_120_000_000, "2025-11-29T22:54:38.120Z"),
        (2_208_988_800_999_999_999, "2040-01-01T00:00:00.999Z"),
    ],
)
def test_times_are_text_in_utc_past_2038_too(ns: int, text: str) -> None:
    assert records.rfc3339(ns) == text


@given(st.integers(0, 4 * 10**18))
def test_a_time_parses_back_to_the_millisecond(ns: int) -> None:
    back = records.parse_rfc3339(records.rfc3339(ns))
    assert back is not None
    assert abs(back - ns / 1e9) < 2e-3


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00Z"])
def test_a_text_that_is_no_time_is_none(text: str) -> None:
    assert records.parse_rfc3339(text) is None


def test_a_lock_that_does_not_say_who_holds_it_names_a_host_that_is_never_proved_dead() -> None:
    said = Lock.from_json(LOCK | {"holder": {"host": "node7", "pid": 12}})
    assert (records.holder_of(said).host, records.holder_of(said).pid) == ("node7", 12)
    for silent in (None, Lock.from_json(LOCK), Lock.from_json(LOCK | {"holder": {"host": 7}})):
        assert records.holder_of(silent) == Holder(host="an unknown host")


def test_a_major_number_of_any_length_is_a_verdict() -> None:
    assert [records.major(text) for text in ("1.0", "12.1", "x.0", "", None, 1.0)] == [1, 12, None, None, None, None]
    assert records.major("9" * 5000 + ".0") is None


def test_a_whole_number_may_be_written_as_a_float_where_one_must_stand() -> None:
    lock = Lock.from_json(LOCK | {"session": 2.0, "fence": {"scalars/main.1.jsonl": 7.0}})
    assert (lock.session, lock.fence) == (2, {"scalars/main.1.jsonl": 7})
    with pytest.raises(InvalidError, match="fence"):
        Lock.from_json(LOCK | {"fence": {"a": {"b": 7.0}}})
