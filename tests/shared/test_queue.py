"""A trainer and two evaluators on three hosts share a queue; a checkpoint goes from host to host; points are seen."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from fsrun.run.check import check_run
from tests.shared.site import Site
from tests.shared.test_ownership import T, finish, opens
from tests.support.programs import Lag
from tools.nfsbed.remote import Process

ENTRIES = 12


def outcomes(run: Path) -> dict[str, list[dict[str, object]]]:
    """The outcomes of each entry, by attempt."""
    found: dict[str, list[dict[str, object]]] = {}
    for path in sorted((run / "evals").iterdir()):
        entry, attempt, _ = path.name.rsplit(".", 2)
        found.setdefault(entry, []).append(json.loads(path.read_text()) | {"k": int(attempt)})
    return found


def errors(run: Path) -> list[str]:
    return [f"{f.path}: {f.message}" for f in check_run(str(run)) if f.severity == "error"]


def done_by(process: Process) -> int:
    return sum("done" in said for said in process.said)


def test_two_evaluators_and_a_trainer_on_three_hosts_count_each_entry_once_under_kills(site: Site) -> None:
    import fsrun

    trainer = site.start("A", "queue-trainer", site.root, T, ENTRIES)
    opens(trainer)
    first = site.start("B", "evaluator", site.root, "eval-b", T, 0.3)
    second = site.start("C", "evaluator", site.root, "eval-c", T, 0.3)
    first.until(lambda said: "began" in said, 240)
    first.signal(signal.SIGKILL)
    trainer.until(lambda said: said.get("handed") == "step_5.pt", 240)
    trainer.signal(signal.SIGKILL)
    trainer.wait(120)
    again = site.start("A", "queue-trainer", site.root, T, ENTRIES, "insist")
    first = site.start("B", "evaluator", site.root, "eval-b", T, 0.3)
    second.until(lambda said: "done" in said, 240)
    began = len(second.said)
    second.until(lambda said: "began" in said and second.said.index(said) >= began, 240)
    site.bed.off("C")
    assert again.wait(120) == 0, again.story()
    assert first.wait(120) == 0, first.story()

    run = site.copy()
    assert errors(run) == []
    found = outcomes(run)
    names = {f"step_{step}.pt" for step in range(ENTRIES)}
    assert set(found) == names
    for name, mine in found.items():
        states = [o["state"] for o in sorted(mine, key=lambda o: int(str(o["k"])))]
        assert states[-1] == "done", (name, states)
        assert states.count("done") == 1, (name, states)
        assert set(states[:-1]) <= {"lost", "returned"}, (name, states)
    assert sorted(p.name for p in (run / "best").iterdir()) == [f"step_{ENTRIES - 2}.pt", f"step_{ENTRIES - 1}.pt"]
    for place in ("queue", "retry", "claimed", "failed", "trash"):
        left = [p for p in (run / place).rglob("*") if p.is_file() and p.name != "FINISHED"]
        assert left == [], f"left in {place}/"
    table = fsrun.open(run).scalars(["eval/acc"], all=True)
    assert sorted(zip(table["step"].to_pylist(), table["value"].to_pylist(), strict=True)) == [
        (step, float(step)) for step in range(ENTRIES)
    ]
    loss = fsrun.open(run).scalars(["loss"])["step"].to_pylist()
    assert sorted(loss) == list(range(ENTRIES))


def test_a_folder_handed_over_on_one_host_is_evaluated_on_another_byte_by_byte(site: Site) -> None:
    size = 300_000
    trainer = site.start("A", "hand-over", site.root, size)
    handed = trainer.until(lambda said: said.get("handed") == "checkpoint-10", 240)
    trainer.until(lambda said: said.get("handed") == "step_20.pt", 240)
    evaluator = site.start("B", "inspect", site.root)
    began = evaluator.until(lambda said: said.get("began") == "checkpoint-10", 240)
    assert began["digest"] == handed["digest"]
    evaluator.tell("on")
    evaluator.until(lambda said: said.get("began") == "step_20.pt", 240)
    # Rewritten under the evaluator's hands: its score is of neither version.
    trainer.tell("rewrite")
    trainer.until(lambda said: "rewritten" in said, 240)
    evaluator.tell("on")
    trainer.tell("end")
    assert trainer.wait(120) == 0, trainer.story()
    for _ in range(4):
        evaluator.tell("on")
    assert evaluator.wait(120) == 0, evaluator.story()
    run = site.copy()
    found = outcomes(run)
    assert [o["state"] for o in found["checkpoint-10"]] == ["done"]
    assert {o["state"] for o in found["step_20.pt"]} == {"failed"}
    assert {o["reason"] for o in found["step_20.pt"]} == {"changed"}
    assert errors(run) == []


def test_a_reader_on_another_host_sees_points_within_the_flush_interval_and_two_seconds(site: Site) -> None:
    with Lag() as lag:
        trainer = site.start("A", "trainer", site.root, T, 0)
        opens(trainer)
        # It ends with the run, whatever that takes.
        reader = site.start("B", "reader", site.root, 240, arrow=True)
        reader.until(lambda said: said.get("seen", 0) >= 1, 240)
        begun = min(step for _, step in site.moments(reader, "seen"))
        reader.until(lambda said: said.get("seen", 0) >= begun + 100, 240)
        finish(trainer)
        assert reader.wait(120) == 0, reader.story()
    logged = {step: at for at, step in site.moments(trainer, "logged")}
    seen = {step: at for at, step in site.moments(reader, "seen")}
    lags = sorted(at - logged[step] for step, at in seen.items())
    assert len(lags) >= 100
    assert set(seen) >= set(range(begun, begun + 100)), "points are missing"
    assert lags[-1] < 0.5 + 2.0 or lag.worst > 0.25, f"a point was seen after {lags[-1]:.2f} s"
