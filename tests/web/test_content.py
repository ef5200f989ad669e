"""What a run recorded besides scalars, over HTTP: in small pages, as text, and never from outside of the run."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.build import RunFolder
from support.viewer import Viewer

BASE = "/api/runs/speech/big"
LOG = "files/output.main.1.log"


def parquet(table: pa.Table, **options: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(table, stream, **options)
    return stream.getvalue()


def index(run: RunFolder, folder: str, *lines: dict[str, Any]) -> None:
    run.write(f"{folder}/main.1.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def ask(viewer: Viewer, path: str, status: int = 200) -> Any:
    answer = viewer().get(f"{BASE}{path}")
    assert answer.status_code == status, answer.text
    return answer.json()


# ---- console


def test_a_console_is_given_as_it_stands_with_where_to_go_on(viewer: Viewer, run: RunFolder) -> None:
    run.write(LOG, "one\ntwo\n")
    found = ask(viewer, "/console")
    assert (found["text"], found["size"], found["offset"], found["next"], found["done"]) == (
        "one\ntwo\n",
        8,
        0,
        8,
        True,
    )
    assert (found["job"], found["session"], found["sessions"], found["jobs"]) == ("main", 1, [1], ["main"])


def test_a_run_without_a_console_has_an_empty_one(viewer: Viewer, run: RunFolder) -> None:
    found = ask(viewer, "/console")
    assert (found["text"], found["size"], found["session"]) == ("", 0, None)


@pytest.mark.parametrize("recorded", [True, False])
def test_a_console_says_what_its_session_failed_of(viewer: Viewer, run: RunFolder, recorded: bool) -> None:
    error = {"type": "ValueError", "message": "no <data>", "traceback": "Traceback\nValueError: no <data>\n"}
    run.lock("eval", 1)
    run.end("eval", 1, "failed", reason="ValueError", error=error)
    if recorded:
        run.write("files/output.eval.1.log", "begun\n")
    found = ask(viewer, "/console?job=eval")
    assert found["failure"] == error | {"status": "failed", "reason": "ValueError", "session": 1}
    run.lock("eval", 2)
    run.write("files/output.eval.2.log", "again\n")
    assert ask(viewer, "/console?job=eval")["failure"] is None
    run.end("eval", 2, "crashed", reason="no beat", found_by={"host": "x"})
    assert ask(viewer, "/console?job=eval")["failure"] == {
        **dict.fromkeys(("type", "message", "traceback")),
        "status": "crashed",
        "reason": "no beat",
        "session": 2,
    }
    run.end("eval", 2)
    assert ask(viewer, "/console?job=eval")["failure"] is None


def test_the_newest_session_is_shown_unless_another_is_named(viewer: Viewer, run: RunFolder) -> None:
    run.write(LOG, "old\n")
    run.write("files/output.main.10.log", "new\n")
    assert ask(viewer, "/console")["text"] == "new\n"
    assert ask(viewer, "/console?session=1")["text"] == "old\n"
    assert ask(viewer, "/console")["done"] is False


def test_pieces_are_whole_lines_both_ways_and_join_to_the_whole(viewer: Viewer, run: RunFolder) -> None:
    whole = "".join(f"line {n} äöü\n" for n in range(400))
    run.write(LOG, whole)
    client = viewer()
    text, at = "", 0
    while at < len(whole.encode()):
        found = client.get(f"{BASE}/console?offset={at}&limit=100").json()
        assert found["text"].endswith("\n")
        text, at = text + found["text"], found["next"]
    assert text == whole
    text, before = "", len(whole.encode())
    while before:
        found = client.get(f"{BASE}/console?before={before}&limit=100").json()
        assert found["text"].startswith("line")
        assert found["offset"] < before
        text, before = found["text"] + text, found["offset"]
    assert text == whole


def test_a_negative_offset_counts_from_the_end_and_begins_with_a_line(viewer: Viewer, run: RunFolder) -> None:
    run.write(LOG, "first line\nsecond line\nthird\n")
    assert ask(viewer, "/console?offset=-16")["text"] == "third\n"
    assert ask(viewer, "/console?offset=-1000")["offset"] == 0


def test_a_line_longer_than_a_piece_comes_in_parts(viewer: Viewer, run: RunFolder) -> None:
    run.write(LOG, "ä" * 100_000)
    client = viewer()
    text, at = "", 0
    while at < 200_000:
        found = client.get(f"{BASE}/console?offset={at}&limit=4097").json()
        assert found["next"] > at
        text, at = text + found["text"], found["next"]
    assert text == "ä" * 100_000


def test_bytes_that_are_no_text_do_not_break_an_answer(viewer: Viewer, run: RunFolder) -> None:
    run.write(LOG, b"\xff\xfe\x00\x1b[31m<script>\xed\xa0\x80\n\xc3")
    found = ask(viewer, "/console")
    assert "\x00\x1b[31m<script>" in found["text"]
    assert (found["next"], found["done"]) == (found["size"], True)


def test_a_character_that_is_only_begun_waits_for_its_rest(viewer: Viewer, root: Path, run: RunFolder) -> None:
    run.lock("side", 1)
    run.write("files/output.side.1.log", b"a\xc3")
    found = ask(viewer, "/console?job=side")
    assert (found["text"], found["next"], found["size"], found["done"]) == ("a", 1, 2, False)


def test_a_search_gives_lines_and_goes_on_behind_them(viewer: Viewer, run: RunFolder) -> None:
    run.write(LOG, "a\nLoss is nan\nb\nloss is 3\nloss loss\n")
    found = ask(viewer, "/console?find=LOSS&limit=2")
    assert [(one["offset"], one["text"]) for one in found["found"]] == [(2, "Loss is nan"), (16, "loss is 3")]
    assert found["done"] is False
    rest = ask(viewer, f"/console?find=LOSS&offset={found['next']}")
    assert ([one["text"] for one in rest["found"]], rest["done"]) == (["loss loss"], True)


def test_a_search_finds_what_lies_across_the_pieces_that_are_read(viewer: Viewer, run: RunFolder) -> None:
    run.write(LOG, "x" * ((1 << 20) - 3) + "needle" + "y" * 100 + "\n")
    found = ask(viewer, "/console?find=needle")
    assert [one["at"] for one in found["found"]] == [(1 << 20) - 3]
    assert len(found["found"][0]["text"]) < 500


@pytest.mark.parametrize(
    "query", ["job=..%2F..%2Fsecret", "job=a%00b", "session=0", "session=x", "offset=x", "limit=0", "limit=99999999"]
)
def test_what_cannot_be_is_refused(viewer: Viewer, run: RunFolder, query: str) -> None:
    run.write(LOG, "x\n")
    assert set(ask(viewer, f"/console?{query}", 400)) == {"error"}


def test_a_console_that_leads_out_of_the_run_is_refused(viewer: Viewer, root: Path, run: RunFolder) -> None:
    (root.parent / "secret.txt").write_text("secret")
    (run.path / LOG).symlink_to(root.parent / "secret.txt")
    assert set(ask(viewer, "/console", 403)) == {"error"}
    assert set(ask(viewer, "/console?session=7", 404)) == {"error"}


# ---- samples


def sampled(run: RunFolder, entry: str, step: int, rows: list[dict[str, Any]], **samples: Any) -> None:
    data = parquet(pa.Table.from_pylist(rows))
    run.write(f"evals/{entry}.1.samples.parquet", data)
    run.outcome(entry, step=step, samples={"rows": len(rows), "size": len(data)} | samples)


def sample(row: int, correct: bool | None, **more: Any) -> dict[str, Any]:
    return {"set": "gsm", "row": row, "sample": 0, "prompt": f"p{row}", "answer": "<b>", "correct": correct} | more


def test_samples_come_in_pages_and_wrong_ones_alone(viewer: Viewer, run: RunFolder) -> None:
    sampled(run, "s1", 1, [sample(0, True), sample(1, False), sample(2, None), sample(3, True)])
    found = ask(viewer, "/samples?limit=3")
    assert (found["entry"], found["attempt"], found["total"], len(found["rows"])) == ("s1", 1, 4, 3)
    assert found["sets"] == [{"set": "gsm", "total": 4, "wrong": 2}]
    place = found["columns"].index("prompt")
    assert [row[place] for row in ask(viewer, "/samples?only=wrong")["rows"]] == ["p1", "p2"]
    assert ask(viewer, "/samples?set=other")["total"] == 0


def test_two_entries_stand_side_by_side(viewer: Viewer, run: RunFolder) -> None:
    sampled(run, "s1", 1, [sample(0, True), sample(1, False)])
    sampled(run, "s2", 2, [sample(1, True), sample(0, True), sample(5, True)])
    found = ask(viewer, "/samples?entry=s2&beside=s1")
    place = found["beside"]["columns"].index("prompt")
    assert [row and row[place] for row in found["beside"]["rows"]] == ["p1", "p0", None]
    changed = ask(viewer, "/samples?entry=s2&beside=s1&only=changed")
    assert [row[changed["columns"].index("row")] for row in changed["rows"]] == [1]


def test_samples_other_than_their_outcome_names_are_not_shown(viewer: Viewer, run: RunFolder) -> None:
    sampled(run, "s1", 1, [sample(0, True)], size=1)
    assert set(ask(viewer, "/samples?entry=s1", 422)) == {"error"}
    sampled(run, "s2", 2, [sample(0, True)], sha256="0" * 64)
    assert set(ask(viewer, "/samples?entry=s2", 422)) == {"error"}
    run.write("evals/s3.1.samples.parquet", "no parquet")
    run.outcome("s3", step=3, samples={"rows": 1, "size": 10})
    assert set(ask(viewer, "/samples?entry=s3", 422)) == {"error"}
    assert set(ask(viewer, "/samples?entry=nothing", 404)) == {"error"}


def test_columns_that_hold_what_they_should_not_are_shown_as_text(viewer: Viewer, run: RunFolder) -> None:
    torn = pa.array([b"\xff", b"ok"], pa.binary()).view(pa.string())
    data = parquet(pa.table({"set": [{"a": 1}, {"a": 2}], "row": ["x", "y"], "correct": [3, 0], "answer": torn}))
    run.write("evals/s1.1.samples.parquet", data)
    run.outcome("s1", step=1, samples={"rows": 2, "size": len(data)})
    found = ask(viewer, "/samples?entry=s1&beside=s1&only=all")
    assert (found["total"], len(found["rows"]), len(found["beside"]["rows"])) == (2, 2, 2)
    assert found["rows"][1][3] == "ok"


def test_a_run_without_samples_has_none(viewer: Viewer, run: RunFolder) -> None:
    assert ask(viewer, "/samples")["rows"] == []


# ---- tables


def table(run: RunFolder, name: str, step: int, data: pa.Table, **options: Any) -> dict[str, Any]:
    path = f"tables/{name}/{step}.parquet"
    size = run.write(path, parquet(data, **options)).stat().st_size
    columns = [{"name": one.name, "type": str(one.type)} for one in data.schema]
    return {"step": step, "time": 1.0, "name": name, "path": path, "size": size, "rows": len(data), "columns": columns}


def test_a_table_is_read_by_the_page_over_its_row_groups(viewer: Viewer, run: RunFolder) -> None:
    index(run, "tables", table(run, "t", 5, pa.table({"n": range(1000)}), row_group_size=100))
    found = ask(viewer, "/table?name=t&offset=195&limit=10")
    assert [row[0] for row in found["rows"]] == list(range(195, 205))
    assert (found["total"], found["step"], found["columns"]) == (1000, 5, [{"name": "n", "type": "int64"}])
    assert ask(viewer, "/table?name=t&offset=5000")["rows"] == []
    assert [(one["name"], one["steps"]) for one in ask(viewer, "/tables")["tables"]] == [("t", [5])]


def test_cells_of_any_kind_become_small_json(viewer: Viewer, run: RunFolder) -> None:
    data = pa.table(
        {
            "text": ["x" * 5000],
            "bytes": [b"\xff\x00"],
            "nan": [float("nan")],
            "far": pa.array([2**55], pa.timestamp("ms")),
            "large": [2**60],
            "deep": [{"a": [float("inf")] * 500}],
        }
    )
    index(run, "tables", table(run, "t", 0, data))
    text, data_bytes, nan, far, large, deep = ask(viewer, "/table?name=t")["rows"][0]
    assert (len(text) < 1100, data_bytes, nan, large) == (True, "<2 bytes>", "NaN", str(2**60))
    assert isinstance(far, str)
    assert deep["a"][0] == "Infinity"
    assert deep["a"][-1] == "… (400 more)"


def test_a_damaged_or_missing_table_is_said_to_be(viewer: Viewer, run: RunFolder) -> None:
    lines = [table(run, name, 0, pa.table({"n": range(5000)})) for name in ("cut", "gone", "torn")]
    index(run, "tables", *lines)
    cut = run.path / "tables/cut/0.parquet"
    cut.write_bytes(cut.read_bytes()[:-20])
    (run.path / "tables/gone/0.parquet").unlink()
    torn = run.path / "tables/torn/0.parquet"
    torn.write_bytes(torn.read_bytes()[:4] + b"\xff" * 2000 + torn.read_bytes()[2004:])
    assert set(ask(viewer, "/table?name=cut", 422)) == {"error"}
    assert set(ask(viewer, "/table?name=torn", 422)) == {"error"}
    assert set(ask(viewer, "/table?name=gone", 404)) == {"error"}
    assert set(ask(viewer, "/table?name=none", 404)) == {"error"}
    assert set(ask(viewer, "/table", 400)) == {"error"}


def test_a_table_that_leads_out_of_the_run_is_left_out(viewer: Viewer, root: Path, run: RunFolder) -> None:
    line = table(run, "t", 0, pa.table({"n": [1]}))
    file = run.path / "tables/t/0.parquet"
    file.rename(root.parent / "out.parquet")
    file.symlink_to(root.parent / "out.parquet")
    index(run, "tables", line)
    assert set(ask(viewer, "/table?name=t", 404)) == {"error"}
    assert "leads out" in ask(viewer, "/tables")["problems"][0]


# ---- media, artifacts, environment


def medium(step: int, **more: Any) -> dict[str, Any]:
    base = {"step": step, "time": 1.0, "kind": "text", "tag": "t", "type": "text/plain", "size": 1, "text": "<img>"}
    return base | more


def test_media_are_given_by_tag_and_thinned_where_they_are_many(viewer: Viewer, run: RunFolder) -> None:
    index(run, "media", *(medium(step) for step in range(3000)), medium(1, tag="u"), medium(2, path="../x", text=None))
    found = ask(viewer, "/media")
    assert [(one["tag"], one["count"], one["last"]) for one in found["tags"]] == [("t", 3000, 2999), ("u", 1, 1)]
    steps = [one["step"] for one in found["media"] if one["tag"] == "t"]
    assert (len(steps), steps[0], steps[-1]) == (1000, 0, 2999)
    assert found["media"][0]["text"] == "<img>"
    assert len(found["problems"]) == 1
    assert [one["tag"] for one in ask(viewer, "/media?tag=u")["media"]] == ["u"]


def test_an_artifact_has_its_files_with_digests_in_pages(viewer: Viewer, run: RunFolder) -> None:
    names = [f"f{number}" for number in range(5)]
    folder = "artifacts/model/v0"
    files = [{"name": name, "size": 1} for name in names]
    run.write(f"{folder}/manifest.json", {"protocol": "1.0", "files": files})
    run.write(f"{folder}/SHA256SUMS", "".join(f"{'a' * 64}  files/{name}\n" for name in names[:4]))
    base = {"time": 1.0, "name": "model", "version": 0, "count": 5, "size": 5}
    index(run, "artifacts", base | {"path": f"{folder}/files", "manifest": f"{folder}/manifest.json"})
    assert [(one["name"], one["path"]) for one in ask(viewer, "/artifacts")["artifacts"]] == [
        ("model", f"{folder}/files")
    ]
    found = ask(viewer, "/artifacts?name=model&version=0&offset=3&limit=9")
    assert [(one["name"], one["path"]) for one in found["files"]] == [
        ("f3", f"{folder}/files/f3"),
        ("f4", f"{folder}/files/f4"),
    ]
    assert found["total"] == 5
    run.write(f"{folder}/manifest.json", "{")
    assert set(ask(viewer, "/artifacts?name=model&version=0", 422)) == {"error"}


def test_an_environment_is_that_of_a_job_and_session(viewer: Viewer, run: RunFolder) -> None:
    assert ask(viewer, "/environment") == {"environment": {}}
    run.write("files/main.1.environment.json", {"protocol": "1.0", "command": ["python", "train.py"]})
    assert ask(viewer, "/environment")["environment"]["command"] == ["python", "train.py"]
    assert ask(viewer, "/environment?session=2") == {"environment": {}}
    assert set(ask(viewer, "/environment?job=..", 400)) == {"error"}


def test_a_run_without_recordings_has_none(viewer: Viewer, run: RunFolder) -> None:
    assert ask(viewer, "/media")["media"] == ask(viewer, "/tables")["tables"] == ask(viewer, "/artifacts")["artifacts"]
    assert set(ask(viewer, "/artifacts?name=x&version=1", 404)) == {"error"}
