"""Several real evaluators on one queue, killed and stopped at random: every entry counts once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from fsrun.core import codec, layout
from fsrun.core.records import Finished
from fsrun.run.reader import RunReader
from tests.support.queue import make_run, outcomes, put_plain, states, where

pytestmark = pytest.mark.multiprocess
ROOT = Path(__file__).parents[2]
LIMIT = 200.0


class Fleet:
    """Evaluators of a run, each in a process that is always reaped."""

    def __init__(self, tmp_path: Path) -> None:
        self.run = make_run(tmp_path / "run")
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.codes: list[int] = []
        self.log: IO[str] = (tmp_path / "errors").open("w+")
        self.began = time.monotonic()

    def finish(self) -> None:
        record = Finished(main_session=1).to_json()
        (self.run / "queue" / "FINISHED").write_bytes(codec.encode_record(record))

    def start(self, job: str, timeout: float = 2.0, work: float = 0.02, samples: int = 0) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "tests.support.evaluator", str(self.run), job]
        words += [str(timeout), str(work), str(samples)]
        process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.running[job] = process
        return process

    def hear(self, process: subprocess.Popen[str], word: str) -> None:
        """Read what a process prints up to a line that begins with ``word``."""
        assert process.stdout is not None
        while not (line := process.stdout.readline()).startswith(word):
            assert line, self.errors()

    def over(self) -> list[tuple[str, int]]:
        """The jobs whose process has ended, reaped, with their exit codes."""
        ended = [job for job, process in self.running.items() if process.poll() is not None]
        for job in ended:
            process = self.running.pop(job)
            assert process.stdout is not None
            process.stdout.close()
            self.codes.append(process.returncode)
        if time.monotonic() - self.began > LIMIT:
            raise AssertionError(f"not over after {LIMIT} s: {where(self.run)}, {outcomes(self.run).keys()}")
        return list(zip(ended, self.codes[len(self.codes) - len(ended) :], strict=True))

    def wait(self) -> None:
        while self.running:
            self.over()
            time.sleep(0.02)

    def check(self, names: set[str], failed: set[str]) -> None:
        """Each entry has one end, and the best two are kept."""
        found = {entry for entry, _ in outcomes(self.run)}
        assert found == names
        for name in names:
            mine = states(self.run, name)
            if name in failed:
                assert "done" not in mine
            else:
                assert mine[-1] == "done", (name, mine)
                assert mine.count("done") == 1, (name, mine)
                assert "failed" not in mine, (name, mine, self.errors())
        ranked = sorted(names - failed, key=lambda name: -int(name.split("_")[1]))
        expected = {"best": sorted(ranked[:2])} | ({"failed": sorted(failed)} if failed else {})
        assert where(self.run) == expected
        assert not list((self.run / "trash").iterdir())

    def check_samples(self, rows: int) -> list[str]:
        """Every done entry has its own samples; returns the files that no outcome names."""
        reader = RunReader(str(self.run))
        done = {name for (name, _), outcome in outcomes(self.run).items() if outcome.state == "done"}
        for name in done:
            assert reader.samples(name).column("prompt").to_pylist() == [name] * rows, name
        assert reader.problems == []
        named = {layout.samples_name(file.entry, file.attempt) for file in reader.sampled()}
        there = {path.name for path in (self.run / "evals").glob("[!.]*.parquet")}
        assert {layout.parse_samples_name(name) for name in there} <= set(outcomes(self.run))
        return sorted(there - named)

    def errors(self) -> str:
        self.log.seek(0)
        return self.log.read()[-3000:]

    def close(self) -> None:
        for process in self.running.values():
            os.kill(process.pid, signal.SIGCONT)
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        self.log.close()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.close()


def test_evaluators_that_are_killed_at_random_count_every_entry_once(fleet: Fleet) -> None:
    names = {f"step_{i}" for i in range(40)}
    for name in names:
        put_plain(fleet.run, name, name.split("_")[1].encode())
    fleet.finish()
    chance = random.Random(7)
    for job in ("eval-a", "eval-b", "eval-c"):
        fleet.start(job, work=0.05, samples=500)
    kills = 0
    while kills < 9 and fleet.running:
        time.sleep(chance.uniform(0.1, 0.4))
        fleet.over()
        if fleet.running:
            job = chance.choice(sorted(fleet.running))
            process = fleet.running[job]
            process.kill()
            process.wait()
            fleet.over()
            fleet.start(job, work=0.05, samples=500)
            kills += 1
    fleet.wait()
    assert kills >= 3
    assert fleet.codes.count(0) == 3, (fleet.codes, fleet.errors())
    fleet.check(names, set())
    fleet.check_samples(500)


def test_an_entry_that_kills_every_evaluator_is_given_up_after_ten_and_the_others_are_done(fleet: Fleet) -> None:
    names = {f"step_{i}" for i in range(6)}
    for name in names:
        put_plain(fleet.run, name, b"poison" if name == "step_2" else name.split("_")[1].encode())
    fleet.finish()
    fleet.start("eval-a")
    fleet.start("eval-b")
    while fleet.running:
        for job, code in fleet.over():
            if code != 0 and not (fleet.run / "failed" / "step_2").exists():
                fleet.start(job)
        time.sleep(0.01)
    fleet.start("eval-a")  # where both were killed before either could recover the tenth loss
    fleet.wait()
    assert states(fleet.run, "step_2") == ["lost"] * 10
    fleet.check(names, {"step_2"})


def test_an_evaluator_that_is_stopped_too_long_goes_on_and_its_late_scores_are_dropped(fleet: Fleet) -> None:
    put_plain(fleet.run, "step_1", b"1")
    stopped = fleet.start("eval-a", timeout=1.0, work=4.0, samples=3)
    fleet.hear(stopped, "began")
    os.kill(stopped.pid, signal.SIGSTOP)
    fleet.finish()
    other = fleet.start("eval-b", timeout=1.0, samples=3)
    other.wait(60)
    os.kill(stopped.pid, signal.SIGCONT)
    stopped.wait(60)
    fleet.over()
    assert fleet.codes == [0, 0], fleet.errors()
    assert states(fleet.run, "step_1") == ["lost", "done"]
    (done,) = [o for o in outcomes(fleet.run).values() if o.state == "done"]
    assert done.job == "eval-b"
    fleet.check({"step_1"}, set())
    assert fleet.check_samples(3) == []


def test_evaluators_share_the_work_and_each_entry_is_evaluated_by_one(fleet: Fleet) -> None:
    for process in [fleet.start(job, timeout=30.0, work=0.05) for job in ("eval-a", "eval-b", "eval-c")]:
        fleet.hear(process, "open")
    names = {f"step_{i}" for i in range(30)}
    for name in names:
        put_plain(fleet.run, name, name.split("_")[1].encode())
    fleet.finish()
    fleet.wait()
    assert fleet.codes == [0, 0, 0], fleet.errors()
    assert {o.state for o in outcomes(fleet.run).values()} == {"done"}
    assert len({o.job for o in outcomes(fleet.run).values()}) >= 2
    fleet.check(names, set())
