"""Rollouts that are held for an evaluation: whatever happens, they go on, and nothing reaches the trainer."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import fsrun
from fsrun.adapters import holding, hooks
from fsrun.adapters.holding import Held, PausedEvaluation, between
from fsrun.core.errors import UsageError
from fsrun.core.sessions import Chain
from fsrun.disk.fs import LocalFileSystem
from fsrun.run.entry import Entry
from fsrun.run.run import Run

PATIENCE = 60.0


@pytest.fixture(autouse=True)
def _no_parquet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Building data.parquet at the end takes most of a small run's time."""
    monkeypatch.setenv("FSRUN_COMPACT", "0")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with fsrun.init("held", run_id="r", root=tmp_path, timeout=5, capture=False, ranks="alone") as run:
        yield run


class Rollouts:
    """The trainer's hooks, and what they did."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")

    async def pause_later(self) -> None:
        await asyncio.sleep(0)
        self.calls.append("pause")

    async def resume_later(self) -> None:
        await asyncio.sleep(0)
        self.calls.append("resume")


@pytest.fixture
def rollouts() -> Rollouts:
    return Rollouts()


def settled(entry: Entry) -> None:
    entry.done({"eval/sums": 0.5})


@contextmanager
def evaluator(run: Run, evaluate: Callable[[Entry], object] = settled) -> Iterator[None]:
    """An evaluator beside the trainer, in a thread, until the block is left."""
    root, project = Path(run.path).parents[1], Path(run.path).parent.name
    failed: list[BaseException] = []
    with fsrun.init(project, run_id=run.id, job="eval", root=root, timeout=5, capture=False, ranks="alone") as side:

        def work() -> None:
            try:
                for entry in side.entries(poll=0.01):
                    with entry:
                        evaluate(entry)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            run.finish_queue()
            thread.join(PATIENCE)
    assert not failed
    assert not thread.is_alive()


def marker(entry: Entry) -> dict[str, Any]:
    value = json.loads(Path(entry.path).read_text())
    assert isinstance(value, dict)
    return value


def points(run: Run, tag: str) -> dict[int, float]:
    run.flush()
    steps, values = fsrun.open(run.path).series(tag)
    return dict(zip(steps.tolist(), values.tolist(), strict=True))


def outcomes(run: Run) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(Path(run.path, "evals").iterdir())]


class TestAnEvaluation:
    def test_rollouts_are_held_from_before_the_claim_until_the_outcome(self, run: Run, rollouts: Rollouts) -> None:
        def evaluate(entry: Entry) -> None:
            rollouts.calls.append("evaluated")
            entry.done({"eval/sums": 0.75})

        with evaluator(run, evaluate):
            held = PausedEvaluation(run, pause=rollouts.pause, resume=rollouts.resume).evaluate(120)
        assert rollouts.calls == ["pause", "evaluated", "resume"]
        assert (held.step, held.state, held.scores, held.reason) == (120, "done", {"eval/sums": 0.75}, None)
        assert held.entry == "engines_step_120.json"
        assert held.resumed
        assert points(run, "eval/sums") == {120: 0.75}

    def test_the_pause_is_logged_at_its_step_by_main(self, run: Run, rollouts: Rollouts) -> None:
        with evaluator(run):
            held = PausedEvaluation(run, pause=rollouts.pause, resume=rollouts.resume).evaluate(7)
        assert points(run, "eval/pause_s") == {7: held.pause_s}
        assert held.pause_s > 0

    def test_the_marker_says_the_weights_and_its_file_is_there_for_as_long_as_the_pause(self, run: Run) -> None:
        seen: list[tuple[dict[str, Any], bool]] = []

        def evaluate(entry: Entry) -> None:
            said = marker(entry)
            seen.append((said, Path(said["while"]).exists()))
            entry.done({"eval/sums": 1.0})

        left: list[bool] = []
        with evaluator(run, evaluate):
            evaluation = PausedEvaluation(run, resume=lambda: left.append(Path(seen[0][0]["while"]).exists()))
            evaluation.evaluate(3, weight_version="step-3")
        ((said, there),) = seen
        assert there
        assert left == [False], "it is gone before rollouts go on"
        assert (said["fsrun"], said["weight_version"]) == ("marker", "step-3")
        assert fsrun_check_is_quiet(run)

    def test_a_step_that_is_evaluated_again_is_another_entry(self, run: Run) -> None:
        with evaluator(run):
            evaluation = PausedEvaluation(run)
            entries = [evaluation.evaluate(5).entry, evaluation.evaluate(5).entry]
        assert entries == ["engines_step_5.json", "engines_step_5~2.json"]

    def test_a_failed_attempt_is_waited_past_and_the_last_one_counts(self, run: Run, rollouts: Rollouts) -> None:
        def evaluate(entry: Entry) -> None:
            if entry.attempt < 3:
                entry.fail("503 from the router")
            else:
                entry.done({"eval/sums": 1.0})

        with evaluator(run, evaluate):
            held = PausedEvaluation(run, pause=rollouts.pause, resume=rollouts.resume).evaluate(1)
        assert held.state == "done"
        assert [outcome["state"] for outcome in outcomes(run)] == ["failed", "failed", "done"]
        assert rollouts.calls == ["pause", "resume"]


def fsrun_check_is_quiet(run: Run) -> bool:
    from fsrun.run.check import check_run

    return not [finding for finding in check_run(run.path) if finding.severity == "error"]


class TestCoroutines:
    def test_hooks_may_be_coroutine_functions(self, run: Run, rollouts: Rollouts) -> None:
        with evaluator(run):
            held = PausedEvaluation(run, pause=rollouts.pause_later, resume=rollouts.resume_later).evaluate(1)
        assert held.state == "done"
        assert rollouts.calls == ["pause", "resume"]

    def test_they_are_run_aside_where_the_caller_runs_a_loop(self, run: Run, rollouts: Rollouts) -> None:
        evaluation = PausedEvaluation(run, pause=rollouts.pause_later, resume=rollouts.resume_later)

        async def train() -> Held:
            return evaluation.evaluate(1)

        with evaluator(run):
            assert asyncio.run(train()).state == "done"
        assert rollouts.calls == ["pause", "resume"]

    def test_a_trainer_in_a_loop_goes_on_meanwhile(self, run: Run, rollouts: Rollouts) -> None:
        answer = asyncio.Event()
        release = threading.Event()

        def evaluate(entry: Entry) -> None:
            assert release.wait(PATIENCE)
            entry.done({"eval/sums": 1.0})

        async def train() -> Held:
            evaluation = PausedEvaluation(run, pause=rollouts.pause_later, resume=rollouts.resume)
            waiting = asyncio.create_task(evaluation.evaluate_async(1))
            while rollouts.calls != ["pause"]:
                await asyncio.sleep(0.001)
            release.set()  # by the loop, which would hang here otherwise
            answer.set()
            return await waiting

        with evaluator(run, evaluate):
            assert asyncio.run(train()).state == "done"
        assert rollouts.calls == ["pause", "resume"]

    def test_a_cancelled_task_resumes_and_is_cancelled(self, run: Run, rollouts: Rollouts) -> None:
        async def train() -> None:
            evaluation = PausedEvaluation(run, pause=rollouts.pause, resume=rollouts.resume_later)
            waiting = asyncio.create_task(evaluation.evaluate_async(1))
            while rollouts.calls != ["pause"]:
                await asyncio.sleep(0.001)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

        asyncio.run(train())
        assert rollouts.calls == ["pause", "resume"]


class TestFaults:
    @pytest.fixture(autouse=True)
    def _quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(holding, "RESUME_PAUSES", (0.0, 0.0))

    def test_a_pause_that_raises_is_recorded_and_resumed_and_not_raised(
        self, run: Run, rollouts: Rollouts, caplog: pytest.LogCaptureFixture
    ) -> None:
        said: list[dict[str, Any]] = []

        def pause() -> None:
            raise ConnectionError("no engine")

        def evaluate(entry: Entry) -> None:
            said.append(marker(entry))
            entry.skip(said[0]["reason"])

        with evaluator(run, evaluate):
            held = PausedEvaluation(run, pause=pause, resume=rollouts.resume).evaluate(4)
        assert rollouts.calls == ["resume"]
        assert held.scores == {}
        assert "pause() raised" in str(held.reason)
        assert "no engine" in str(held.reason)
        assert not Path(said[0]["while"]).exists()
        assert "no engine" in outcomes(run)[0]["reason"]
        assert "step 4 has no evaluation: pause() raised" in caplog.text

    def test_resume_is_called_until_it_returns(self, run: Run, rollouts: Rollouts) -> None:
        def resume() -> None:
            rollouts.resume()
            if len(rollouts.calls) < 3:
                raise TimeoutError("busy")

        with evaluator(run):
            held = PausedEvaluation(run, resume=resume).evaluate(1)
        assert rollouts.calls == ["resume"] * 3
        assert held.resumed
        assert held.state == "done"

    def test_one_that_never_returns_is_said_loudly_and_called_again_at_the_next_evaluation(
        self, run: Run, rollouts: Rollouts, caplog: pytest.LogCaptureFixture
    ) -> None:
        def resume() -> None:
            rollouts.resume()
            if len(rollouts.calls) <= 4:  # one pause, three times resume
                raise TimeoutError("engine 3 does not answer")

        with evaluator(run):
            evaluation = PausedEvaluation(run, pause=rollouts.pause, resume=resume)
            rollouts.calls.clear()
            first = evaluation.evaluate(1)
            rollouts.calls += ["next"]
            second = evaluation.evaluate(2)
        assert not first.resumed
        assert first.state == "done"
        assert second.resumed
        said = caplog.text
        assert "ROLLOUTS MAY STILL BE PAUSED: resume() raised 3 times" in said
        assert "engine 3 does not answer" in said
        after = rollouts.calls[rollouts.calls.index("next") + 1 :]
        assert after == ["resume", "pause", "resume"]

    def test_an_interrupt_while_waiting_resumes_first(self, run: Run, rollouts: Rollouts) -> None:
        def evaluate(entry: Entry) -> None:
            entry.done({"eval/sums": 1.0})

        def pause() -> None:
            rollouts.pause()
            raise KeyboardInterrupt

        with evaluator(run, evaluate):
            with pytest.raises(KeyboardInterrupt):
                PausedEvaluation(run, pause=pause, resume=rollouts.resume).evaluate(1)
        assert rollouts.calls == ["pause", "resume"]

    def test_an_interrupt_amid_resume_calls_it_once_more(self, run: Run, rollouts: Rollouts) -> None:
        def resume() -> None:
            rollouts.resume()
            if len(rollouts.calls) == 1:
                raise KeyboardInterrupt

        with evaluator(run):
            with pytest.raises(KeyboardInterrupt):
                PausedEvaluation(run, resume=resume).evaluate(1)
        assert rollouts.calls == ["resume", "resume"]

    def test_the_limit_ends_the_pause_and_takes_the_markers_file_away(self, run: Run, rollouts: Rollouts) -> None:
        began, held_up = threading.Event(), threading.Event()

        def evaluate(entry: Entry) -> None:
            file = Path(marker(entry)["while"])
            began.set()
            assert held_up.wait(PATIENCE)
            assert not file.exists()
            entry.skip("rollouts had resumed")

        with evaluator(run, evaluate):
            evaluation = PausedEvaluation(run, pause=rollouts.pause, resume=rollouts.resume, limit=3)
            held = evaluation.evaluate(1)
            assert began.wait(PATIENCE)
            held_up.set()
        assert rollouts.calls == ["pause", "resume"]
        assert held.state is None
        assert held.reason == "it took longer than the limit of 3 s"
        assert outcomes(run)[0]["state"] == "skipped"

    def test_where_no_evaluator_runs_the_pause_ends_soon(self, run: Run, rollouts: Rollouts) -> None:
        evaluation = PausedEvaluation(run, pause=rollouts.pause, resume=rollouts.resume, taken=20)
        held = evaluation.evaluate(1)
        assert held.reason == "no evaluator took it within 20 s; is one running?"
        assert rollouts.calls == ["pause", "resume"]
        assert (Path(run.path) / "queue" / "engines_step_1.json").exists(), "it waits for one that says why not"

    def test_a_folder_that_is_slow_is_not_called_one_that_does_not_answer(
        self, run: Run, rollouts: Rollouts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        look = PausedEvaluation._look

        def slowly(*arguments: Any) -> Any:
            time.sleep(0.3)  # after which it is left alone for longer than the time that is left
            return look(*arguments)

        monkeypatch.setattr(PausedEvaluation, "_look", slowly)
        held = PausedEvaluation(run, pause=rollouts.pause, resume=rollouts.resume, taken=3).evaluate(1)
        assert held.reason == "no evaluator took it within 3 s; is one running?"
        assert held.pause_s < 5

    def test_a_point_that_is_given_up_has_its_reason(self, run: Run, rollouts: Rollouts) -> None:
        with evaluator(run, lambda entry: entry.fail("the router has no workers")):
            held = PausedEvaluation(run, pause=rollouts.pause, resume=rollouts.resume).evaluate(1)
        assert (held.state, held.reason) == ("failed", "failed: the router has no workers")
        assert [outcome["state"] for outcome in outcomes(run)] == ["failed"] * 3
        assert rollouts.calls == ["pause", "resume"]

    def test_a_skipped_point_has_its_reason(self, run: Run) -> None:
        with evaluator(run, lambda entry: entry.skip("weights are of step 3")):
            held = PausedEvaluation(run).evaluate(1)
        assert (held.state, held.reason) == ("skipped", "skipped: weights are of step 3")

    def test_a_step_that_is_none_holds_nothing(self, run: Run, rollouts: Rollouts) -> None:
        held = PausedEvaluation(run, pause=rollouts.pause).evaluate("seven")  # type: ignore[arg-type]
        assert held.reason == "'seven' is no step"
        assert rollouts.calls == []

    def test_a_second_one_meanwhile_holds_nothing(self, run: Run, rollouts: Rollouts) -> None:
        inner: list[Held] = []
        with evaluator(run):
            evaluation = PausedEvaluation(run, pause=lambda: inner.append(evaluation.evaluate(2)))
            assert evaluation.evaluate(1).state == "done"
        assert "another evaluation holds rollouts" in str(inner[0].reason)

    def test_a_quiet_run_calls_no_hook_and_starts_nothing(self, tmp_path: Path, rollouts: Rollouts) -> None:
        with fsrun.init("held", root=tmp_path, capture=False, ranks="alone") as run:
            pass
        evaluation = PausedEvaluation(
            run, pause=rollouts.pause, router="http://127.0.0.1:1", prompt_data={"a": __file__}
        )
        assert "not open here" in str(evaluation.evaluate(1).reason)
        evaluation.close()
        assert rollouts.calls == []

    def test_the_file_of_a_killed_trainer_goes_when_the_next_one_comes(self, tmp_path: Path) -> None:
        with fsrun.init("held", run_id="r", root=tmp_path, timeout=5, capture=False, ranks="alone") as run:
            left = Path(run.path, "files", ".main.1.0badcafe.tmp")
            other = Path(run.path, "files", ".main.1.0badbeef.tmp")
            sign = holding._Sign()
            PausedEvaluation(run)._hand_over(sign, 1, None, None)
            path = sign.path
            assert path is not None
            names = {Path(path).parent}
        assert names == {left.parent}
        other.write_bytes(b"a diff")
        with fsrun.init("held", run_id="r", root=tmp_path, timeout=5, capture=False, ranks="alone") as run:
            PausedEvaluation(run)
        assert not Path(path).exists()
        assert other.exists(), "only what an evaluation left"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"pause": "engines.pause"}, "pause= is to be called without arguments"),
        ({"limit": 0}, "limit=0 is not a number of seconds above 0"),
        ({"taken": "1m"}, "taken='1m' is not a number of seconds"),
        ({"router": "http://r", "engines": ["http://e"]}, "give either router= or engines=, not both"),
        ({"router": "http://r"}, "router= and engines= need eval data"),
        ({"router": "http://me:secret@r:1", "config": __file__}, "http://r:1: a URL with a user or password"),
        ({"router": "http://r", "prompt_data": {"gsm8k": "/no/x.jsonl"}}, "/no/x.jsonl: no such file"),
        ({"engines": ["http://r"], "config": "/no/evals.yaml"}, "/no/evals.yaml: no such file"),
        ({"arguments": ["--keep-samples", "0"]}, "are for the evaluator that router= or engines= starts"),
    ],
)
def test_arguments_that_cannot_work_are_refused_at_once(run: Run, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as refused:
        PausedEvaluation(run, **arguments)
    assert says in str(refused.value)


class TestAFolderThatHangs:
    @pytest.fixture
    def thaw(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
        """Until it is set, no file is made."""
        event = threading.Event()

        class Frozen(LocalFileSystem):
            def create(self, path: str, data: bytes) -> None:
                assert event.wait(PATIENCE)
                super().create(path, data)

        monkeypatch.setattr(holding, "LocalFileSystem", Frozen)
        yield event
        event.set()

    def test_rollouts_go_on_at_the_limit_and_the_next_evaluation_does_not_hold_them(
        self, run: Run, rollouts: Rollouts, thaw: threading.Event, caplog: pytest.LogCaptureFixture
    ) -> None:
        evaluation = PausedEvaluation(run, pause=rollouts.pause, resume=rollouts.resume, limit=0.2)
        held = evaluation.evaluate(1)
        assert not thaw.is_set()
        assert rollouts.calls == ["pause", "resume"]
        assert f"{run.path} did not answer" in str(held.reason)
        assert "rollouts go on, and" in caplog.text
        second = evaluation.evaluate(2)
        assert rollouts.calls == ["pause", "resume"], "it is not paused in vain"
        assert second.reason == f"{run.path} still does not answer"
        thaw.set()
        aside = evaluation._aside
        assert aside is not None
        aside.thread.join(PATIENCE)
        assert list(Path(run.path, "files").glob(".main*")) == [], "the marker's file goes when it can"
        assert list(Path(run.path, "queue").glob("engines*")) == [], "what comes too late is not handed over"
        with evaluator(run):
            assert evaluation.evaluate(3).state == "done"

    def test_one_that_hangs_at_the_end_does_not_hold_them(
        self, run: Run, rollouts: Rollouts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        thaw = threading.Event()

        def remove(path: str | None) -> None:
            assert thaw.wait(PATIENCE)

        monkeypatch.setattr(holding, "_remove", remove)
        monkeypatch.setattr(holding, "_REMOVAL", 0.1)
        with evaluator(run):
            held = PausedEvaluation(run, pause=rollouts.pause, resume=rollouts.resume).evaluate(1)
            assert not thaw.is_set()
            thaw.set()
        assert held.state == "done"
        assert rollouts.calls == ["pause", "resume"]


class TestWhatEndsAProgram:
    @pytest.fixture(autouse=True)
    def _quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(holding, "RESUME_PAUSES", (0.0, 0.0))

    @pytest.mark.parametrize("drops", [False, True])
    @pytest.mark.parametrize("later", [False, True])
    def test_a_coroutine_that_is_closed_or_dropped_resumes(
        self, run: Run, rollouts: Rollouts, later: bool, drops: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        evaluation = PausedEvaluation(
            run, pause=rollouts.pause, resume=rollouts.resume_later if later else rollouts.resume
        )
        coroutine = evaluation.evaluate_async(1)

        async def train() -> None:
            coroutine.send(None)  # to its first wait, in which rollouts are held

        asyncio.run(train())
        assert rollouts.calls == ["pause"]
        if drops:
            del coroutine
            gc.collect()
        else:
            coroutine.close()
        assert rollouts.calls == ["pause", "resume"]
        assert ("a thread with a loop of its own" in caplog.text) == later
        assert "ROLLOUTS MAY" not in caplog.text
        with evaluator(run):
            held = evaluation.evaluate(2)
            while held.entry is None:  # the work of the first one, aside, is not done yet
                held = evaluation.evaluate(2)
        assert held.state == "done", "it holds nothing for good"

    @pytest.mark.parametrize("ends", [GeneratorExit, SystemExit, asyncio.CancelledError])
    @pytest.mark.parametrize("in_loop", [False, True])
    def test_a_pause_that_ends_the_program_resumes_first(
        self, run: Run, rollouts: Rollouts, ends: type[BaseException], in_loop: bool
    ) -> None:
        def pause() -> None:
            raise ends

        evaluation = PausedEvaluation(run, pause=pause, resume=rollouts.resume)

        async def train() -> None:
            await evaluation.evaluate_async(1)

        with pytest.raises(ends):
            asyncio.run(train()) if in_loop else evaluation.evaluate(1)
        assert rollouts.calls == ["resume"]

    def test_an_interrupt_between_two_calls_of_resume_calls_it_again_first(
        self, run: Run, rollouts: Rollouts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = time.sleep

        def sleep(seconds: float) -> None:
            if seconds == 7.0:
                raise KeyboardInterrupt
            real(seconds)

        def resume() -> None:
            rollouts.resume()
            if len(rollouts.calls) == 1:
                raise TimeoutError("busy")

        monkeypatch.setattr(holding, "RESUME_PAUSES", (7.0,))
        with evaluator(run):
            monkeypatch.setattr(hooks.time, "sleep", sleep)
            with pytest.raises(KeyboardInterrupt):
                PausedEvaluation(run, resume=resume).evaluate(1)
            monkeypatch.undo()
        assert rollouts.calls == ["resume", "resume"]

    def test_what_resume_raises_after_an_interrupt_does_not_replace_it(
        self, run: Run, rollouts: Rollouts, caplog: pytest.LogCaptureFixture
    ) -> None:
        def resume() -> None:
            rollouts.resume()
            raise KeyboardInterrupt if len(rollouts.calls) == 1 else ValueError("no engine")

        with evaluator(run):
            with pytest.raises(KeyboardInterrupt):
                PausedEvaluation(run, resume=resume).evaluate(1)
        assert rollouts.calls == ["resume"] * 3
        assert "ROLLOUTS MAY STILL BE PAUSED" in caplog.text
        assert "no engine" in caplog.text

    def test_a_resume_that_hangs_is_left_after_a_second_interrupt(
        self, run: Run, rollouts: Rollouts, caplog: pytest.LogCaptureFixture
    ) -> None:
        def resume() -> None:
            rollouts.resume()
            raise KeyboardInterrupt

        with evaluator(run):
            with pytest.raises(KeyboardInterrupt):
                PausedEvaluation(run, resume=resume).evaluate(1)
        assert rollouts.calls == ["resume", "resume"]
        assert "ROLLOUTS MAY STILL BE PAUSED" in caplog.text

    def test_a_task_that_is_cancelled_again_and_again_resumes_to_the_end_and_once(
        self, run: Run, rollouts: Rollouts
    ) -> None:
        async def train() -> None:
            began, may_end = asyncio.Event(), asyncio.Event()

            async def resume() -> None:
                rollouts.calls.append("begins")
                began.set()
                await may_end.wait()
                rollouts.resume()

            evaluation = PausedEvaluation(run, pause=rollouts.pause, resume=resume)
            waiting = asyncio.create_task(evaluation.evaluate_async(1))
            while rollouts.calls != ["pause"]:
                await asyncio.sleep(0.001)
            waiting.cancel()
            await began.wait()
            for _ in range(3):
                waiting.cancel()
                await asyncio.sleep(0)
            may_end.set()
            with pytest.raises(asyncio.CancelledError):
                await waiting

        asyncio.run(train())
        assert rollouts.calls == ["pause", "begins", "resume"]

    def test_a_resume_that_does_not_end_holds_a_cancelled_task_for_a_while_only(
        self, run: Run, rollouts: Rollouts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(hooks, "FINISHING", 0.0)

        async def train() -> None:
            began = asyncio.Event()

            async def resume() -> None:
                began.set()
                await asyncio.Event().wait()

            waiting = asyncio.create_task(PausedEvaluation(run, resume=resume).evaluate_async(1))
            with evaluator(run):
                while not began.is_set():
                    await asyncio.sleep(0.001)
            while not waiting.done():
                waiting.cancel()
                await asyncio.sleep(0.001)
            with pytest.raises(asyncio.CancelledError):
                await waiting

        asyncio.run(train())
        assert "ROLLOUTS MAY STILL BE PAUSED" in caplog.text


class TestAnEvaluatorThatIsSlow:
    def test_one_that_has_not_joined_within_the_limit_costs_no_pause_and_its_wait_is_logged(
        self, run: Run, rollouts: Rollouts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(holding.EvaluatorProcess, "ensure", lambda self: True)
        with PausedEvaluation(
            run, pause=rollouts.pause, resume=rollouts.resume, router="http://h:1", config=__file__, limit=0.3
        ) as evaluation:
            held = evaluation.evaluate(7)
        assert rollouts.calls == []
        assert held.entry is None
        assert "had not joined the run" in str(held.reason)
        assert held.pause_s >= 0.3
        assert points(run, "eval/pause_s") == {7: held.pause_s}

    def test_the_wait_for_it_is_part_of_the_limit_and_of_the_pause(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looks: list[float] = []

        def look(*given: object) -> Chain:
            looks.append(time.monotonic())
            return Chain("eval", highest=int(len(looks) > 1))

        begun: list[float] = []

        def hold(self: PausedEvaluation, step: int, version: str | None, started: float) -> Any:
            begun.append(started)
            return Held(step)
            yield

        monkeypatch.setattr(holding.EvaluatorProcess, "ensure", lambda self: True)
        monkeypatch.setattr(PausedEvaluation, "_hold", hold)
        with PausedEvaluation(run, router="http://h:1", config=__file__) as evaluation:
            monkeypatch.setattr(holding.chain, "look", look)
            evaluation.evaluate(7)
            monkeypatch.undo()
        assert len(looks) == 2
        assert begun[0] <= looks[0]


def test_looks_that_take_long_are_rare_but_never_rarer_than_every_few_seconds() -> None:
    assert between(0.1, 0.001) == 0.1
    assert between(0.1, 0.05) == pytest.approx(1.0)
    assert between(0.1, 9.0) == 5.0
