"""protocol.md against the code: its examples validate and parse, its names and tables are the code's own."""

import dataclasses
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from referencing import Registry, Resource

from fsrun.core import codec, ids, indexes, layout, order, records, samples, states
from fsrun.run import fingerprint

pytestmark = pytest.mark.documents

TEXT = (Path(__file__).parents[2] / "protocol.md").read_text()
BLOCKS = re.findall(r"^```([^\n]+)\n(.*?)^```$", TEXT, re.M | re.S)
SCHEMAS = {info.split()[2]: json.loads(body) for info, body in BLOCKS if info.startswith("json schema ")}
EXAMPLES = [(info.split()[2], json.loads(body)) for info, body in BLOCKS if info.startswith("json example ")]
REGISTRY = Registry().with_resources(
    [
        (s["$id"], Resource.from_contents({"$schema": "https://json-schema.org/draft/2020-12/schema", **s}))
        for s in SCHEMAS.values()
    ]
)
RECORDS = {
    "holder": records.Holder,
    "lock": records.Lock,
    "end": records.End,
    "meta": records.Meta,
    "outcome": records.Outcome,
    "best": records.BestRule,
    "finished": records.Finished,
    "unit": records.Unit,
    "media": indexes.MediaLine,
    "table": indexes.TableLine,
    "artifact": indexes.ArtifactLine,
}


def has_step(name: str, said: str | None = None) -> bool:
    """Whether a name has a step at all, where none is said, or the one that is said."""
    found = order.step_of_name(name)
    return found is not None if said is None else found == int(said)


NAMES = {
    "job": ids.is_job,
    "folder": ids.is_id,
    "jobs": lambda name: layout.parse_job_file(name) is not None,
    "entry": ids.is_entry,
    "use": lambda name: ids.split_entry(name)[1] > 1,
    "step": lambda line: has_step(*line.rsplit(" ", 1)),
    "outcome": lambda name: layout.parse_outcome_name(name) is not None,
    "samples": lambda name: layout.parse_samples_name(name) is not None,
}


def names_of(kind: str) -> list[tuple[str, str]]:
    return [
        (info.split()[1], line)
        for info, body in BLOCKS
        if info.split()[0] == kind and len(info.split()) == 2
        for line in body.splitlines()
    ]


def validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(SCHEMAS[name], registry=REGISTRY)


def test_every_schema_has_an_example_and_the_other_way_round() -> None:
    assert set(SCHEMAS) == {name for name, _ in EXAMPLES}
    assert len(SCHEMAS) >= 11


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_an_example_validates_against_its_schema(name: str, example: dict[str, object]) -> None:
    validator(name).validate(example)


@pytest.mark.parametrize(("name", "example"), [e for e in EXAMPLES if e[0] in RECORDS])
def test_an_example_is_read_and_written_again_without_loss(name: str, example: dict[str, object]) -> None:
    record = RECORDS[name].from_json(example)
    assert not record.extra
    written = record.to_json()
    assert {k: written[k] for k in example} == example
    validator(name).validate(json.loads(codec.encode_record(written)))


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_a_schema_names_the_keys_that_the_code_writes(name: str) -> None:
    assert set(SCHEMAS[name]["properties"]) == {f.name for f in dataclasses.fields(RECORDS[name])} - {"extra"}


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_a_schema_and_the_code_reject_the_same_missing_keys(name: str) -> None:
    example = next(e for n, e in EXAMPLES if n == name)
    for key in example:
        smaller = {k: v for k, v in example.items() if k != key}
        schema_says = validator(name).is_valid(smaller)
        try:
            RECORDS[name].from_json(smaller)
            code_says = True
        except records.InvalidError:
            code_says = False
        if key != "protocol":  # readers take a missing version for 1.0; writers must state it
            assert schema_says == code_says, key


def test_the_columns_of_samples_are_those_of_the_code() -> None:
    kinds = {"text": "string", "int": "integer", "float": "number", "bool": "boolean"}
    said = {name: spec["type"] for name, spec in SCHEMAS["samples"]["properties"].items()}
    assert said == {name: [kinds[kind], "null"] for name, kind in samples.COLUMNS.items()}
    assert tuple(SCHEMAS["samples"]["required"]) == samples.KEY


@pytest.mark.parametrize(("kind", "name"), names_of("valid"))
def test_a_name_called_valid_is_accepted(kind: str, name: str) -> None:
    assert NAMES[kind](name)


@pytest.mark.parametrize(("kind", "name"), names_of("invalid"))
def test_a_name_called_invalid_is_not(kind: str, name: str) -> None:
    assert not NAMES[kind](name)


def test_the_session_table_is_the_one_that_the_session_model_is_held_to() -> None:
    rows = re.findall(r"^\| (absent|open|closed) \| (\w+) \| (\w+) \| (\w+) \|$", TEXT, re.M)
    events = (states.SessionEvent.LOCK, states.SessionEvent.BEAT, states.SessionEvent.END)
    said = {
        (states.SessionState(row[0]), event): states.SessionState(cell)
        for row in rows
        for event, cell in zip(events, row[1:], strict=True)
        if cell != "refused"
    }
    assert len(rows) == 3
    assert said == states.SESSION_TABLE


def test_the_tree_names_every_place_of_the_layout() -> None:
    tree = TEXT.split("## 2. Tree")[1].split("## 3.")[0]
    places = [
        value
        for key, value in vars(layout).items()
        if key.isupper() and isinstance(value, str) and key not in ("TEMP",)
    ]
    assert len(places) > 15
    for place in places:
        assert re.search(rf"`[^`]*(?<!\w){re.escape(place)}\b", tree), place


def test_the_limits_in_the_text_are_those_of_the_code() -> None:
    assert f"at the {states.MAX_FAILED}rd failed" in TEXT
    assert f"at the {states.MAX_LOST}th lost" in TEXT
    assert f"| {ids.MAX_ENTRY} bytes |" in TEXT
    assert f"| {ids.MAX_JOB} bytes |" in TEXT
    assert f"| {ids.MAX_ID} bytes |" in TEXT


def test_the_smallest_writer_makes_a_valid_run(tmp_path: Path) -> None:
    script = next(body for info, body in BLOCKS if info == "sh transcript")
    run = tmp_path / "runs" / "demo" / "shell"
    subprocess.run(["sh", "-c", script, "writer", str(run)], check=True, timeout=120)
    assert sorted(p.name for p in (run / "jobs").iterdir()) == ["main.1.end", "main.1.lock"]
    for name in ("lock", "end"):
        record = codec.decode_record((run / "jobs" / f"main.1.{name}").read_bytes())
        assert record is not None
        validator(name).validate(record)
    for line in (run / "scalars" / "main.1.jsonl").read_text().splitlines():
        validator("line").validate(json.loads(line))
    check = subprocess.run(
        [sys.executable, "-m", "fsrun", "check", str(run)], capture_output=True, text=True, timeout=120
    )
    assert check.returncode == 0, check.stdout + check.stderr
    again = subprocess.run(["sh", "-c", script, "writer", str(run)], capture_output=True, text=True, timeout=120)
    assert again.returncode == 3


@pytest.mark.parametrize("size", [0, 4095, 12_288, 12_289, 20_001])
def test_a_sample_is_what_the_text_says(tmp_path: Path, size: int) -> None:
    assert "the first, the last, and the one that begins at byte `size / 2`, rounded down" in TEXT
    data = bytes(i * 7 % 251 for i in range(size))
    file = tmp_path / "x"
    file.write_bytes(data)
    said = data if size <= 12_288 else data[:4096] + data[-4096:] + data[size // 2 : size // 2 + 4096]
    with file.open("rb") as opened:
        found = fingerprint.of_open_file(opened.fileno(), "")
    assert found["sample"] == hashlib.blake2b(said, digest_size=16).hexdigest()


def test_every_link_of_the_table_of_contents_leads_to_a_heading() -> None:
    links = re.findall(r"^\d+\. \[[^]]+\]\(#([^)]+)\)$", TEXT, re.M)
    headings = [re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^## (.+)$", TEXT, re.M)]
    assert links == headings


def test_the_sample_that_is_given_is_the_one_of_the_content_that_is_described(tmp_path: Path) -> None:
    said = re.search(r"`seq -f %04g 0 3999` prints is `([0-9a-f]{32})`", TEXT)
    assert said is not None
    file = tmp_path / "lines"
    assert file.write_text("".join(f"{number:04d}\n" for number in range(4000))) == 20000
    with file.open("rb") as opened:
        assert fingerprint.of_open_file(opened.fileno(), "")["sample"] == said[1]
