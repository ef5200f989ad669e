"""Records, lines and what else is JSON on a shared disk: garbage is a verdict, what is valid comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsrun.core import codec, indexes, order, records, redaction, scalars, system, versions
from fsrun.core.errors import InvalidError
from fsrun.core.records import BestRule, End, Finished, Holder, Lock, Meta, Outcome, Record, Unit
from fsrun.disk import footer
from fsrun.run import listing
from fsrun.run.digests import parse_sums
from fsrun.run.spill import SpillNote
from tests.fuzz.damage import TEXTS, VALUES
from tests.fuzz.garbage import bounded, examples, mutated, raw, spoiled, values, verdict

GOOD: dict[type[Record], dict[str, Any]] = {
    Holder: {"host": "n", "boot": "b", "pidns": "1", "pid": 7, "ticks": 5, "user": "ana"},
    Lock: {
        "protocol": "1.0", "must_understand": [], "job": "main", "session": 2, "token": "0123456789", "timeout": 30.0,
        "opened": "2026-11-29T22:54:38.120Z", "holder": {"host": "n"}, "continues": False, "fence": {"a": 5},
        "project": "p", "run": "r", "name": None, "config": {"a": 1}, "unit": None, "hands_over": False,
    },
    End: {
        "job": "main", "session": 1, "token": "", "status": "failed", "reason": "exit 3", "ended": "", "step": 5,
        "summary": {"a": 1.5}, "sizes": {"a": 5}, "error": None, "exit_code": 3, "found_by": None,
    },
    Meta: {
        "entry": "a.pt", "step": 1, "main_session": 1, "kind": "file", "files": [{"name": "", "size": 1}], "size": 1,
        "handed_over": "", "order": 5, "source": "x", "retry_of": None,
    },
    Outcome: {
        "entry": "a.pt", "attempt": 1, "state": "done", "reason": None, "step": 1, "main_session": 1, "order": 5,
        "scores": {"a": 1.5}, "details": {}, "lag_steps": 1, "duration_s": 1.5, "started": "", "ended": "", "time": 1.0,
        "job": "eval", "session": 1, "token": "", "by": {}, "engine": None, "samples": None, "error": None,
    },
    BestRule: {"mode": "max", "tag": "a", "keep": 1},
    Finished: {"main_session": 1, "token": "", "written": ""},
    Unit: {"id": "x", "project": "p", "run": "r"},
    SpillNote: {"run_dir": "/r", "job": "main", "session": 1, "token": "0123456789", "piece": 0},
}  # fmt: skip
LINES: dict[str, dict[str, Any]] = {
    "media": {"step": 1, "time": 1.0, "kind": "image", "tag": "a", "path": "media/a/1.png", "size": 1, "info": {}},
    "tables": {"step": 1, "time": 1.0, "name": "a", "path": "tables/a/1.parquet", "rows": 1, "columns": []},
    "artifacts": {
        "time": 1.0, "name": "a", "version": 0, "path": "artifacts/a/v0/files", "manifest": "artifacts/a/m.json",
    },
}  # fmt: skip
CONSUMED = {
    "protocol": "1.0", "sources": {"scalars/main.1.jsonl": 5}, "outcomes": ["a.1"], "handed_over": {"a.1": [1, 2]},
    "others": ["b.1"], "skipped": {"x": 1}, "plain": True, "tokens": {"main.1": "0123456789"},
}  # fmt: skip


def as_read(value: Any) -> dict[str, Any] | None:
    """A record as a reader of its file has it."""
    return codec.decode_record(orjson.dumps(value, default=str) + b"\n")


@pytest.mark.parametrize("kind", GOOD, ids=lambda kind: kind.KIND)
def test_a_good_record_comes_back_with_what_is_not_known(kind: type[Record]) -> None:
    good = kind.from_json(GOOD[kind] | {"later": [1]})
    again = codec.decode_record(codec.encode_record(good.to_json()))
    assert again is not None
    assert kind.from_json(again) == good


@pytest.mark.parametrize("kind", GOOD, ids=lambda kind: kind.KIND)
@given(data=st.data())
@examples(20)
def test_a_record_with_other_keys_is_read_or_refused_and_what_is_read_comes_back(
    kind: type[Record], data: st.DataObject
) -> None:
    value = as_read(data.draw(mutated(GOOD[kind], ("protocol", "later"))))
    assert value is not None
    verdict(lambda: versions.refusal(value))
    verdict(lambda: versions.decode_lock(value, "x"), InvalidError)
    found = verdict(lambda: kind.from_json(value, "a/b"), InvalidError)
    if isinstance(found, kind):
        again = codec.decode_record(codec.encode_record(found.to_json()))
        assert again is not None
        assert kind.from_json(again) == found
        if isinstance(found, Lock):
            verdict(lambda: records.holder_of(found))
        if isinstance(found, Outcome):
            verdict(lambda: scalars.outcome_points(found, "a.1"))


def with_text(good: dict[str, Any], key: str, text: str) -> bytes:
    """A record in which the JSON ``text`` stands under a key, byte for byte."""
    return json.dumps(good | {key: "@"}).replace('"@"', text).encode() + b"\n"


@pytest.mark.parametrize("text", VALUES)
def test_each_awkward_value_under_each_key_is_read_or_refused(text: str) -> None:
    for kind, good in GOOD.items():
        for key in (*good, "protocol", "must_understand"):
            record = codec.decode_record(with_text(good, key, text))
            if record is not None:
                verdict(lambda kind=kind, record=record: kind.from_json(record), InvalidError)  # type: ignore[misc]
                verdict(lambda record=record: versions.refusal(record))  # type: ignore[misc]
    for folder, good in LINES.items():
        for key in good:
            line = codec.decode_record(with_text(good, key, text))
            if line is not None:
                verdict(lambda folder=folder, line=line: indexes.read_line(folder, line), InvalidError)  # type: ignore[misc]
    for key in CONSUMED:
        for inner in (text, f"[{text}]", f'{{"x":{text}}}', f'{{"x":[{text},{text}]}}'):
            verdict(lambda key=key, inner=inner: footer.Consumed.decode(with_text(CONSUMED, key, inner)))  # type: ignore[misc]


READERS: dict[str, Callable[[bytes], object]] = {
    "record": codec.decode_record,
    "samples of the machine": system.parse_samples,
    "FINISHED": order.parse_finished,
    "metadata of data.parquet": footer.Consumed.decode,
    "footer of Parquet": lambda data: footer.find_value(data, footer.KEY),
    "sums": parse_sums,
}


@pytest.mark.parametrize("reader", READERS)
@given(data=raw)
@examples(30)
def test_any_bytes_are_a_verdict(reader: str, data: bytes) -> None:
    verdict(lambda: READERS[reader](data))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_each_awkward_text_is_a_verdict_that_costs_no_memory(reader: str, text: bytes) -> None:
    with bounded(32 << 20):
        verdict(lambda: READERS[reader](text))


@given(spoiled(orjson.dumps({"time": 1.5, "host/cpu": 3, "gpu/0/util": 97.5}) + b"\n"))
@examples(40)
def test_a_spoiled_sample_of_the_machine_is_read_or_named(data: bytes) -> None:
    found, faults = system.parse_samples(data)
    assert all(isinstance(sample.time, float) for sample in found)
    assert all(number >= 1 for number, _ in faults)


@given(st.dictionaries(st.text(max_size=8), values, max_size=5))
@examples(30)
def test_any_json_is_shown_and_cleaned(value: dict[str, Any]) -> None:
    verdict(lambda: redaction.redact(value))
    verdict(lambda: listing.error_line(value))
    assert codec.decode_record(codec.encode_record(value)) is not None


@given(st.text(max_size=60))
@examples(40)
def test_any_text_is_a_time_or_none(text: str) -> None:
    verdict(lambda: records.parse_rfc3339(text))
    verdict(lambda: records.major(text))
