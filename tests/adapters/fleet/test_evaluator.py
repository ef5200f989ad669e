"""A fleet of stand-in engines, from the first entry to the last, with faults in between."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from fsrun.adapters import measure
from fsrun.adapters.evaluation import EvaluationError
from fsrun.adapters.fleet import FleetSettings, loading
from fsrun.adapters.fleet.evaluator import FleetEvaluator, OneVersion
from fsrun.adapters.fleet.states import Event, Fleet, Phase, Target
from fsrun.adapters.generation import Answer, Ask, Served
from fsrun.adapters.http import CallError
from fsrun.adapters.plan import EvalPlan
from fsrun.adapters.sglang_api import Engine, Load
from fsrun.core.errors import UsageError
from support import standin_fleet

from .conftest import ROWS, request

Snapshots = Callable[..., Path]
Fleets = Callable[..., FleetEvaluator]


def pids(fleet: FleetEvaluator) -> dict[str, int]:
    return dict(fleet.processes.running)


def test_each_entry_is_answered_by_its_own_weights_alone(fleet: Fleets, snapshot: Snapshots) -> None:
    one = fleet()
    first = one.evaluate(request(snapshot("a", "7"), "e0"))
    started = pids(one)
    second = one.evaluate(request(snapshot("b", "8"), "e1"))
    assert (first.scores["eval/sums"], second.scores["eval/sums"]) == (1.0, 0.0)
    assert pids(one) == started
    assert {row["weight_version"] for row in second.samples.to_pylist()} == {second.engine["weight_version"]}
    assert first.engine["weight_checksum"] != second.engine["weight_checksum"]
    assert second.engine["weight_version"].endswith("/e1/1/10")
    assert second.report


def test_prompts_go_to_all_engines(fleet: Fleets, snapshot: Snapshots) -> None:
    result = fleet().evaluate(request(snapshot("a", "7")))
    assert len(result.engine["engines"]) == 2
    assert result.samples.num_rows == ROWS


def test_a_snapshot_that_does_not_verify_is_not_heard_of_by_any_engine(fleet: Fleets, snapshot: Snapshots) -> None:
    one = fleet()
    one.evaluate(request(snapshot("a", "7")))
    started = pids(one)
    bad = snapshot("b", "8")
    weights = bad / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 3)
    with pytest.raises(EvaluationError, match=r"model\.safetensors"):
        one.evaluate(request(bad, "e1"))
    assert pids(one) == started


def test_a_snapshot_that_ends_an_engine_fails_and_the_next_entry_finds_all_engines(
    fleet: Fleets, snapshot: Snapshots
) -> None:
    one = fleet()
    one.evaluate(request(snapshot("a", "7")))
    started = pids(one)
    with pytest.raises(EvaluationError, match="ended while it loaded the snapshot: exit 1: RuntimeError: shapes"):
        one.evaluate(request(snapshot("b", "8", {"load": "die"}), "e1"))
    assert len(set(started.items()) & set(pids(one).items())) == 2, "one engine and the router live on"
    result = one.evaluate(request(snapshot("c", "7"), "e2"))
    assert result.scores["eval/sums"] == 1.0
    assert len(one.supervision.fleet.members) == 2


def test_a_snapshot_that_ended_an_engine_is_served_by_engines_that_start_with_it(
    fleet: Fleets, snapshot: Snapshots
) -> None:
    one = fleet()
    one.evaluate(request(snapshot("a", "7")))
    bad = snapshot("b", "8", {"load": "die"})
    with pytest.raises(EvaluationError):
        one.evaluate(request(bad, "e1", attempt=1))
    living = pids(one)
    result = one.evaluate(request(bad, "e1", attempt=2))
    assert result.scores["eval/sums"] == 0.0
    # The engine that lived was ended and started, not told to load.
    assert "HTTP" not in " ".join(one.said)  # type: ignore[attr-defined]
    assert pids(one)["router"] == living["router"]


def test_an_engine_that_refuses_a_load_is_started_anew_with_it(fleet: Fleets, snapshot: Snapshots) -> None:
    one = fleet(num_gpus=1)
    one.evaluate(request(snapshot("a", "7")))
    before = pids(one)
    result = one.evaluate(request(snapshot("b", "8", {"load": "refuse"}), "e1"))
    assert result.scores["eval/sums"] == 0.0
    assert pids(one)["engine-0"] != before["engine-0"]
    assert result.engine["replaced"] == ["engine-0"]


def test_a_load_that_left_old_weights_in_one_engine_gives_no_score(fleet: Fleets, snapshot: Snapshots) -> None:
    one = fleet()
    one.evaluate(request(snapshot("a", "7")))
    with pytest.raises(EvaluationError, match="what the engines loaded is not what the files hold"):
        one.evaluate(request(snapshot("b", "8", {"load": "mix"}), "e1"))
    assert one.evaluate(request(snapshot("c", "7"), "e2")).scores["eval/sums"] == 1.0


def test_a_load_that_changed_nothing_in_the_only_engine_is_made_by_a_start(fleet: Fleets, snapshot: Snapshots) -> None:
    one = fleet(num_gpus=1)
    one.evaluate(request(snapshot("a", "7")))
    before = pids(one)
    result = one.evaluate(request(snapshot("b", "8", {"load": "ignore"}), "e1"))
    assert result.scores["eval/sums"] == 0.0
    assert result.engine["replaced"] == ["engine-0"]
    assert pids(one)["engine-0"] != before["engine-0"]


def test_an_engine_that_differs_after_others_began_to_answer_gives_no_score(
    fleet: Fleets, snapshot: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = fleet()
    one.evaluate(request(snapshot("a", "7")))
    disputed = asyncio.Event()
    prove = loading.prove

    async def late(engine: Engine, version: str) -> Any:
        if version.endswith("/e1/1/10") and one.supervision.fleet.proven:
            # Its evidence comes when the others' answers are complete.
            await disputed.wait()
        return await prove(engine, version)

    measured = measure.measure

    async def then_prove(*arguments: Any, **more: Any) -> Any:
        found = await measured(*arguments, **more)
        disputed.set()
        return found

    monkeypatch.setattr(loading, "prove", late)
    monkeypatch.setattr(measure, "measure", then_prove)
    monkeypatch.setattr(Fleet, "ready", lambda self, *_: any(m.phase is Phase.SERVING for m in self.members.values()))
    with pytest.raises(EvaluationError, match="what the engines loaded is not what the files hold"):
        one.evaluate(request(snapshot("b", "8", {"load": "mix"}), "e1"))


def test_nothing_is_asked_while_engines_differ() -> None:
    async def ask() -> tuple[bool, str]:
        agreed = asyncio.Event()
        asked = OneVersion(Mixed("ours"), "ours", agreed=agreed.wait)
        asking = asyncio.ensure_future(asked.generate(Ask([1], {})))
        for _ in range(5):
            await asyncio.sleep(0)
        waited = not asking.done()
        agreed.set()
        return waited, (await asking).text

    assert asyncio.run(ask()) == (True, "ours")


def test_an_engine_that_cannot_start_says_why(fleet: Fleets, snapshot: Snapshots) -> None:
    one = fleet()
    with pytest.raises(EvaluationError, match=r"exit 1: ValueError: unknown model type \(log: .*engine-\d\.log\)"):
        one.evaluate(request(snapshot("a", "7", {"start": "die"})))
    assert one.evaluate(request(snapshot("b", "7"), "e1")).scores["eval/sums"] == 1.0


def test_settings_that_an_engine_refuses_are_no_fault_of_an_entry(fleet: Fleets, snapshot: Snapshots) -> None:
    one = fleet(sglang_args=("--nonsense", "1"))
    with pytest.raises(UsageError, match=r"engine-\d refuses its command line: .*unrecognized arguments: --nonsense"):
        one.evaluate(request(snapshot("a", "7")))


def test_a_port_that_somebody_else_took_is_no_failure(fleet: Fleets, snapshot: Snapshots) -> None:
    one = fleet(num_gpus=1)
    assert one.evaluate(request(snapshot("a", "7", {"start": "clash"}))).scores["eval/sums"] == 1.0


def test_another_model_is_served_by_engines_that_start_with_it(fleet: Fleets, snapshot: Snapshots) -> None:
    one = fleet()
    one.evaluate(request(snapshot("a", "7")))
    before = pids(one)
    result = one.evaluate(request(snapshot("b", "8", rope_theta=5.0), "e1"))
    assert result.scores["eval/sums"] == 0.0
    assert not set(pids(one).values()) & {before["engine-0"], before["engine-1"]}


def test_an_engine_that_died_between_two_entries_is_started_with_the_next(fleet: Fleets, snapshot: Snapshots) -> None:
    one = fleet()
    one.evaluate(request(snapshot("a", "7")))
    os.kill(pids(one)["engine-0"], signal.SIGKILL)
    assert one.evaluate(request(snapshot("b", "7"), "e1")).scores["eval/sums"] == 1.0


def test_a_dead_router_is_started_on_its_port(fleet: Fleets, snapshot: Snapshots) -> None:
    one = fleet()
    one.evaluate(request(snapshot("a", "7")))
    port = one.supervision.router_url
    os.kill(pids(one)["router"], signal.SIGKILL)
    assert one.evaluate(request(snapshot("b", "7"), "e1")).scores["eval/sums"] == 1.0
    assert one.supervision.router_url == port


def test_an_engine_that_hangs_is_replaced_and_given_up_in_the_end(fleet: Fleets, snapshot: Snapshots) -> None:
    one = fleet(num_gpus=1, restarts=1, probe_limit=0.2)
    with pytest.raises(EvaluationError, match=r"no engine serves: http://.* does not generate any more"):
        one.evaluate(request(snapshot("a", "7", {"generate": "hang", "health": "hang"})))
    assert one.supervision.fleet.replaced == ["engine-0", "engine-0"]
    assert one.evaluate(request(snapshot("b", "7"), "e1")).scores["eval/sums"] == 1.0


def test_an_engine_that_is_well_but_gets_on_with_no_prompt_is_replaced(fleet: Fleets, snapshot: Snapshots) -> None:
    one = fleet(num_gpus=1, restarts=1, stall_limit=0.5)
    with pytest.raises(EvaluationError, match=r"no engine serves: http://.* has requests, and generated nothing for"):
        one.evaluate(request(snapshot("a", "7", {"generate": "hang"})))
    assert one.supervision.fleet.replaced == ["engine-0", "engine-0"]


def test_an_engine_that_denies_a_load_is_not_waited_for(fleet: Fleets, snapshot: Snapshots) -> None:
    one = fleet(num_gpus=1)

    async def load(error: CallError) -> bool:
        asked = []

        class Denies:
            async def load(self) -> Load:
                return Load(0, 0)

            async def load_weights(self, *_: Any, **__: Any) -> None:
                raise error

        async def ends(_: str) -> bool:
            asked.append(1)
            return True

        supervision = one.supervision
        supervision._engine = lambda _: Denies()  # type: ignore[method-assign,assignment,return-value]
        supervision._ends = ends  # type: ignore[method-assign]
        supervision.fleet.members["engine-0"].phase = Phase.STALE
        supervision.fleet.aim(Target("v", str(snapshot("a", "7"))))
        supervision.fleet.happened("engine-0", Event.LOAD)
        with contextlib.suppress(CallError):
            await supervision._load("engine-0")
        return bool(asked)

    for kind in ("denied", "missing", "rejected", "nonsense"):
        assert not asyncio.run(load(CallError(kind, "http://h:1"))), kind
    assert asyncio.run(load(CallError("cut", "http://h:1")))


def test_a_prompt_that_no_engine_knows_any_more_is_asked_again_a_few_times() -> None:
    class Forgets:
        def __init__(self, times: int) -> None:
            self.times = times

        async def generate(self, ask: Ask) -> Answer:
            self.times -= 1
            if self.times >= 0:
                await asyncio.Event().wait()
            return Answer(text="ours", weight_versions=("ours",))

        async def served(self) -> list[Served]:
            return []

    async def lost() -> None:
        await asyncio.sleep(0)

    async def ask(times: int) -> Answer:
        return await OneVersion(Forgets(times), "ours", lost=lost).generate(Ask([1], {}))

    assert asyncio.run(ask(2)).text == "ours"
    assert asyncio.run(ask(3)).error == "no answer came, and no engine had the prompt any more"


def test_an_engine_that_dies_while_prompts_run_costs_none_of_them(fleet: Fleets, snapshot: Snapshots) -> None:
    one = fleet()
    folder = snapshot("a", "7")
    # Dies with its first prompt, once.
    (folder / "behave.json").write_text('{"generate": "die"}')
    result = one.evaluate(request(folder))
    assert result.scores["eval/sums"] == 1.0
    assert result.scores["eval/sums/failed"] == 0.0
    assert len(result.engine["replaced"]) == 1


def test_an_entry_over_its_limit_fails_and_the_next_one_does_not(fleet: Fleets, snapshot: Snapshots) -> None:
    one = fleet(num_gpus=1)
    one.evaluate(request(snapshot("a", "7")))
    one.limit = 2.0
    with pytest.raises(EvaluationError, match="took longer than the limit of 2 s"):
        one.evaluate(request(snapshot("b", "7", {"generate": "hang"}), "e1"))
    one.limit = None
    assert one.evaluate(request(snapshot("c", "7"), "e2")).scores["eval/sums"] == 1.0


@pytest.mark.parametrize("router", ["sglang-router", "smg"])
def test_both_routers_are_found_by_name(fleet: Fleets, snapshot: Snapshots, router: str) -> None:
    one = fleet(num_gpus=1, router_command=router)
    one.check()
    assert one.evaluate(request(snapshot("a", "7"))).engine["router"] == router


def test_a_seed_that_engines_cannot_heed_is_told_of(snapshot: Snapshots, plan: EvalPlan, tmp_path: Path) -> None:
    settings = FleetSettings(1, sglang_python=standin_fleet.python(tmp_path), sglang_args=("--device", "cpu"))
    said: list[str] = []
    one = FleetEvaluator(replace(plan, seed=3), settings, say=said.append)
    other = FleetEvaluator(replace(plan, seed=3), replace(settings, sglang_args=()), say=said.append)
    try:
        one.check()
        assert "ignore --eval-seed" in said[0]
        other.check()
        assert len(said) == 1
        assert other.settings.sglang_args == ("--enable-deterministic-inference",)
        assert other.versions == {"sglang": "0.5.23", "sglang-router": "0.3.2"}
    finally:
        one.close()
        other.close()


def test_given_engines_are_loaded_and_left_running(fleet: Fleets, snapshot: Snapshots) -> None:
    theirs = fleet()
    theirs.evaluate(request(snapshot("a", "8")))
    urls = tuple(theirs.supervision.urls.values())
    ours = fleet(urls=urls)
    result = ours.evaluate(request(snapshot("b", "7")))
    assert result.scores["eval/sums"] == 1.0
    assert set(pids(ours)) == {"router"}
    ours.close()
    for url in urls:
        host, port = url.removeprefix("http://").split(":")
        socket.create_connection((host, int(port)), timeout=10).close()


def test_engines_ask_for_both_keys_and_no_command_line_shows_them(fleet: Fleets, snapshot: Snapshots) -> None:
    theirs = fleet(num_gpus=1, api_key="sekret-a", admin_key="sekret-b")
    theirs.evaluate(request(snapshot("a", "8")))
    assert theirs.evaluate(request(snapshot("b", "7"), "e1")).scores["eval/sums"] == 1.0
    lines = {name: psutil.Process(pid).cmdline() for name, pid in pids(theirs).items()}
    assert "sekret" not in str(lines)
    assert "--config" in lines["engine-0"]
    urls = tuple(theirs.supervision.urls.values())
    denied = fleet(urls=urls, api_key="sekret-a")
    with pytest.raises(EvaluationError, match="FSRUN_EVAL_ADMIN_API_KEY"):
        denied.evaluate(request(snapshot("c", "7"), "e0"))
    denied.close()
    ours = fleet(urls=urls, api_key="sekret-a", admin_key="sekret-b")
    assert ours.evaluate(request(snapshot("d", "7"), "e0")).scores["eval/sums"] == 1.0


def test_a_given_engine_of_another_model_is_refused(fleet: Fleets, snapshot: Snapshots) -> None:
    theirs = fleet(num_gpus=1)
    theirs.evaluate(request(snapshot("a", "7")))
    ours = fleet(urls=tuple(theirs.supervision.urls.values()))
    ours.evaluate(request(snapshot("b", "7")))
    with pytest.raises(EvaluationError, match="another model than the engines hold"):
        ours.evaluate(request(snapshot("c", "7", rope_theta=5.0), "e1"))


def test_a_given_engine_that_is_gone_fails_the_attempt_with_its_url(fleet: Fleets, snapshot: Snapshots) -> None:
    ours = fleet(urls=("http://127.0.0.1:9",), answer_limit=0.0)
    with pytest.raises(EvaluationError, match=r"http://127\.0\.0\.1:9 takes no requests"):
        ours.evaluate(request(snapshot("b", "7")))


def test_twenty_loads_in_a_row_leave_as_many_processes_as_one(fleet: Fleets, snapshot: Snapshots) -> None:
    one = fleet()
    folders = [snapshot("a", "7"), snapshot("b", "8")]
    one.evaluate(request(folders[1]))
    started = pids(one)
    scores = [one.evaluate(request(folders[n % 2], f"e{n}")).scores["eval/sums"] for n in range(20)]
    assert scores == [1.0, 0.0] * 10
    assert pids(one) == started
    assert all(member.phase is Phase.SERVING for member in one.supervision.fleet.members.values())


class Mixed:
    """Answers with the versions of a list, then with the last of them."""

    def __init__(self, *versions: str) -> None:
        self.versions = list(versions)

    async def generate(self, ask: Ask) -> Answer:
        version = self.versions.pop(0) if len(self.versions) > 1 else self.versions[0]
        return Answer(text=version, weight_versions=(version,))

    async def served(self) -> list[Served]:
        return []


def test_what_other_weights_answered_is_asked_again_until_the_right_ones_answer() -> None:
    ask = Ask([1], {})
    right = OneVersion(Mixed("theirs", "theirs", "ours"), "ours")
    assert asyncio.run(right.generate(ask)).text == "ours"
    never = OneVersion(Mixed("theirs"), "ours", limit=0.3)
    assert asyncio.run(never.generate(ask)).text == "theirs"


def test_unexpected_errors_are_outcomes(fleet: Fleets, snapshot: Snapshots, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("what nobody thought of")

    one = fleet()
    monkeypatch.setattr(one._tokenizers, "get", broken)
    with pytest.raises(EvaluationError, match="ZeroDivisionError: what nobody thought of"):
        one.evaluate(request(snapshot("a", "7")))
