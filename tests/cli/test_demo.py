"""``fsrun demo``: both processes for real, what it prints, and that each of its claims can fail."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

import fsrun as fsrun_package
from fsrun.cli.demo import claims, progress, report
from fsrun.cli.demo.plan import TRAIN_IMAGES, Plan
from fsrun.cli.demo.sums import claims as sums_claims
from fsrun.cli.demo.sums import plan, play
from fsrun.cli.demo.watch import Seen, look
from fsrun.core.errors import UsageError
from fsrun.core.queue import Claim
from tests.support import build
from tests.support.command import fsrun
from tests.support.programs import PATIENCE, environment, read, until

PLAN = Plan(epochs=4)


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    env = environment(folder, arrow=True) | {"FSRUN_ROOT": "", "FSRUN_TIMEOUT": "5", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "fsrun", "demo", "--epochs", str(PLAN.epochs), *arguments]
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@dataclass
class Shown:
    """A demo that has ended."""

    folder: Path
    code: int
    out: str
    err: str

    @property
    def run(self) -> Path:
        (path,) = (self.folder / "runs" / "digits").iterdir()
        return path


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """One ``fsrun demo --crash`` for all tests that look at what it left."""
    folder = tmp_path_factory.mktemp("my demo")
    process = start(folder, "--crash")
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    return Shown(folder, process.returncode, out, err)


class TestPlan:
    pytestmark = pytest.mark.unit

    @pytest.mark.parametrize("epochs", [4, 7, 12, 13, 72, 1000])
    def test_checkpoints_stand_at_ends_of_epochs_and_the_last_one_at_the_end(self, epochs: int) -> None:
        plan = Plan(epochs)
        steps = plan.checkpoint_steps
        assert len(steps) == min(epochs, 12)
        assert (steps[-1], plan.steps) == (plan.steps, epochs * plan.steps_per_epoch)
        assert all(step % plan.steps_per_epoch == 0 for step in steps)
        assert plan.steps_per_epoch == -(-TRAIN_IMAGES // 48)


@pytest.mark.multiprocess
class TestCrash:
    def test_everything_it_claims_holds(self, crashed: Shown) -> None:
        assert (crashed.code, crashed.err) == (0, "")
        checked = crashed.out.partition("Checked against the files of the run:\n")[2].partition("\n\n")[0].splitlines()
        assert len(checked) == 9
        assert all(line.startswith("  ok ") for line in checked)

    def test_it_says_what_it_did_line_by_line(self, crashed: Shown) -> None:
        lines = crashed.out.splitlines()
        assert sum(line.startswith("evaluated step_") for line in lines) == 4
        assert sum(line.startswith("Killed the evaluator (SIGKILL to process") for line in lines) == 1
        assert "training is done: 120 steps" in lines
        assert "Best checkpoint: step_" in crashed.out
        assert "train/acc (⠶)   eval/acc (O)   by training step" in crashed.out
        assert "\x1b" not in crashed.out, "no colours in a pipe"

    def test_the_files_show_one_lost_attempt_and_one_outcome_that_counts_for_each_checkpoint(
        self, crashed: Shown
    ) -> None:
        outcomes = [read(path) for path in (crashed.run / "evals").iterdir()]
        states = sorted(outcome["state"] for outcome in outcomes)
        assert states == ["done"] * 4 + ["lost"]
        assert len({outcome["entry"] for outcome in outcomes if outcome["state"] == "done"}) == 4
        assert {path.name for path in (crashed.run / "jobs").glob("*.lock")} == {
            "main.1.lock",
            "eval.1.lock",
            "eval.2.lock",
        }
        assert read(crashed.run / "jobs" / "eval.1.end")["status"] == "crashed"

    def test_the_commands_it_prints_work_when_pasted(self, crashed: Shown) -> None:
        shown = crashed.out.partition("The run is a folder of plain files:")[2].splitlines()
        commands = [line.split("  # ")[0].strip() for line in shown if line.startswith("  ") and "# " not in line[:4]]
        assert [command.split()[0] for command in commands[:5]] == ["ls", "tail", "cat", "ls", "cat"]
        assert len(commands) == 7
        env = environment(crashed.folder, arrow=True) | {"FSRUN_ROOT": ""}
        for command in commands:
            done = subprocess.run(["sh", "-c", command], cwd=crashed.folder, env=env, capture_output=True)
            assert (done.returncode, done.stderr) == (0, b""), command
            assert done.stdout, command

    def test_ls_and_check_in_the_same_folder_know_the_run(self, crashed: Shown) -> None:
        assert "finished" in fsrun("ls", crashed.folder / "runs").stdout
        assert "In a browser, with charts: " in crashed.out
        assert fsrun("check", crashed.run).exit_code == 0


def killed(run: Path) -> list[Claim]:
    (lost,) = (found for found in map(read, (run / "evals").iterdir()) if found["state"] == "lost")
    return [Claim("eval", 1, lost["attempt"], lost["entry"])]


def broken_claims(run: Path, held: list[Claim]) -> list[str]:
    """The sentences that the files contradict, by their first words."""
    checked = claims.check(claims.Evidence(str(run), time.time_ns()), PLAN, held)
    return [" ".join(claim.text.split()[:3]) for claim in checked if not claim.holds]


def lose_an_outcome(run: Path) -> None:
    next(iter(sorted((run / "evals").glob("step_00030*")))).unlink()


def put_a_second_outcome(run: Path) -> None:
    shutil.copy(run / "evals" / "step_00030.joblib.1.json", run / "evals" / "step_00030.joblib.2.json")


def lose_a_meta(run: Path) -> None:
    (run / "meta" / "step_00060.joblib.json").unlink()


def leave_an_entry(run: Path) -> None:
    (run / "queue" / "step_00030.joblib").write_bytes(b"weights")


def lose_the_best(run: Path) -> None:
    for path in (run / "best").iterdir():
        path.unlink()


def lose_points(run: Path) -> None:
    (run / "data.parquet").unlink()
    log = run / "scalars" / "main.1.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:100]))


def open_the_evaluator_again(run: Path) -> None:
    (run / "jobs" / "eval.2.end").unlink()


@pytest.mark.multiprocess
class TestClaims:
    def test_all_hold_of_the_files_as_they_are(self, crashed: Shown) -> None:
        assert broken_claims(crashed.run, killed(crashed.run)) == []

    @pytest.mark.parametrize(
        ("harm", "says"),
        [
            (lose_an_outcome, {"each was evaluated:"}),
            (put_a_second_outcome, {"each was evaluated:"}),
            (lose_a_meta, {"4 checkpoints were"}),
            (leave_an_entry, {"queue/, retry/, claimed/"}),
            (lose_the_best, {"best/ holds step_"}),
            (lose_points, {"train/loss has 120"}),
            (open_the_evaluator_again, {"both jobs ended"}),
        ],
    )
    def test_each_fails_where_the_files_say_otherwise(
        self, crashed: Shown, tmp_path: Path, harm: Callable[[Path], None], says: set[str]
    ) -> None:
        run = tmp_path / "digits" / "copy"
        shutil.copytree(crashed.run, run)
        held = killed(run)
        harm(run)
        broken = broken_claims(run, held)
        assert all(any(text.startswith(said) for text in broken) for said in says), broken

    def test_a_kill_that_left_no_lost_attempt_is_no_proof(self, crashed: Shown) -> None:
        assert broken_claims(crashed.run, []) == ["0 attempts were"]
        assert broken_claims(crashed.run, [Claim("eval", 1, 7, "step_00030.joblib")]) == ["1 attempt was"]


@pytest.mark.multiprocess
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_both_processes_and_leaves_a_valid_run(tmp_path: Path, number: signal.Signals, code: int) -> None:
    process = start(tmp_path)
    try:
        # Scalars are written once a second: from then on the trainer is at work, and the evaluator is about to start.
        until(lambda: list(tmp_path.glob("runs/digits/*/scalars/main.1.jsonl")))
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) >= 2
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, err) == (code, "")
    assert "Stopped; both processes have ended." in out
    assert not [child for child in family if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    (run,) = tmp_path.glob("runs/digits/*")
    assert fsrun("check", run).exit_code == 0
    assert "main.1.end" in os.listdir(run / "jobs")


@pytest.mark.parametrize(
    ("module", "arguments", "said"),
    [
        ("sklearn", [], "needs scikit-learn: {pip} '{checkout}[demo]', or, in the checkout, sh tools/demo"),
        ("plotext", [], "needs plotext 6.1 or newer: {pip} '{checkout}[demo]'"),
        ("torch", ["--torch"], "needs torch: {pip} '{checkout}[torch]'"),
    ],
)
def test_a_missing_package_is_one_line_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str, arguments: list[str], said: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    result = fsrun("demo", *arguments, root=tmp_path)
    assert result.exit_code == 1
    pip = f"{shlex.quote(sys.executable)} -m pip install"
    assert said.format(pip=pip, checkout=Path(__file__).parents[2]) in result.stderr
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        ('{"url": "file:///home/ada/my%20code/fsrun", "dir_info": {}}', "/home/ada/my code/fsrun"),
        ('{"url": "https://host/fsrun.whl"}', "/path/to/checkout"),
        (None, "/path/to/checkout"),
        ("[]", "/path/to/checkout"),
    ],
)
def test_an_installed_fsrun_names_the_folder_that_it_came_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, origin: str | None, source: str
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            return origin

    monkeypatch.setattr(fsrun_package, "__file__", str(tmp_path / "site-packages" / "fsrun" / "__init__.py"))
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Installed())
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert shlex.quote(f"{source}[demo]") in fsrun("demo", root=tmp_path).stderr


class TestGenerate:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["--generate", "--crash"], "--generate is a demo of its own: give it without --crash and --torch"),
            (["--generate", "--torch"], "--generate is a demo of its own: give it without --crash and --torch"),
            (["--sglang-python", "python"], "--sglang-python goes with --generate"),
            (["--generate", "--sglang-python", "/no/where"], "--sglang-python /no/where: no such program"),
        ],
    )
    def test_what_does_not_go_together_is_one_line(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], says: str
    ) -> None:
        monkeypatch.setattr(play, "missing", list)
        result = fsrun("demo", *arguments, root=tmp_path)
        assert (result.exit_code, result.stderr) == (2, f"fsrun: {says}\n")
        assert list(tmp_path.iterdir()) == []

    def test_a_missing_package_is_one_line_with_the_remedy(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(play, "missing", lambda: ["torch", "transformers"])
        result = fsrun("demo", "--generate", root=tmp_path)
        assert result.exit_code == 1
        assert "needs torch, transformers: " in result.stderr
        assert f"{Path(__file__).parents[2]}[demo,torch,sglang]" in result.stderr
        assert result.stderr.count("\n") == 1

    def test_the_python_with_sglang_is_the_one_given_else_the_variables_else_the_tools(self, tmp_path: Path) -> None:
        made = {name: tmp_path / name for name in ("given", "variable", "tool")}
        for path in made.values():
            path.write_text("#!/bin/sh\n")
            path.chmod(0o755)
        (tmp_path / "tools").mkdir()
        (tmp_path / "tools" / "sglang_cpu").write_text(f"print({str(made['tool'])!r})\n")
        variable = {"FSRUN_SGLANG_PYTHON": str(made["variable"])}
        assert play.find_python(str(made["given"]), variable, str(tmp_path)) == str(made["given"])
        assert play.find_python(None, variable, str(tmp_path)) == str(made["variable"])
        assert play.find_python(None, {}, str(tmp_path)) == str(made["tool"])
        made["tool"].unlink()
        with pytest.raises(UsageError, match="give --sglang-python PATH or"):
            play.find_python(None, {}, str(tmp_path))

    @pytest.mark.unit
    def test_the_sums_are_split_once_and_for_all(self, tmp_path: Path) -> None:
        learned, held_out = plan.split()
        assert (len(learned), len(held_out)) == (90 * 90 - plan.HELD_OUT, plan.HELD_OUT)
        assert not set(learned) & set(held_out)
        assert plan.split() == (learned, held_out)
        plan.write_eval_set(str(tmp_path / "sums.jsonl"))
        first = json.loads((tmp_path / "sums.jsonl").read_text().splitlines()[0])
        a, b = held_out[0]
        assert first == {"prompt": f"{a}+{b}=", "label": str(a + b)}

    @pytest.mark.unit
    def test_snapshots_stand_at_both_ends_and_between(self) -> None:
        assert plan.SumsPlan().checkpoint_steps == (0, 100, 200, 300, 400, 500, 600, 700)
        assert plan.SumsPlan(steps=250, every=100).checkpoint_steps == (0, 100, 200, 250)

    @pytest.mark.unit
    @pytest.mark.parametrize(
        ("harm", "broken"),
        [
            ({}, []),
            ({"transformers": 0.9}, ["eval/sums equals the accuracy"]),
            ({"same": 299}, ["and of 600"]),
            ({"fleet": 0.85, "transformers": 0.85}, ["the model learned"]),
            ({"versions": frozenset({"0"})}, ["each snapshot was answered"]),
            ({"versions": frozenset({"0", "700"})}, ["each snapshot was answered"]),
            ({"versions": frozenset({""})}, ["each snapshot was answered"]),
        ],
    )
    def test_each_claim_about_answers_can_fail(self, harm: dict[str, Any], broken: list[str]) -> None:
        last = {"fleet": 0.95, "transformers": 0.95, "same": plan.HELD_OUT, "versions": frozenset({"700"})} | harm
        first = sums_claims.Compared(0, "step_0", 0.0, 0.0, plan.HELD_OUT, frozenset({"0"}))
        compared = [first, sums_claims.Compared(700, "step_700", **last)]
        checked = sums_claims.about_answers(compared, plan.SumsPlan(steps=700, every=700))
        found = [claim.text for claim in checked if not claim.holds]
        assert len(found) == len(broken)
        assert all(text.startswith(start) for text, start in zip(found, broken, strict=True))


def test_a_root_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = fsrun("demo", "--root", tmp_path / "file" / "runs")
    assert result.exit_code == 2
    assert str(tmp_path / "file") in result.stderr
    assert result.stderr.count("\n") == 1


class TestWatch:
    def test_a_run_that_is_not_there_yet_shows_nothing(self, tmp_path: Path) -> None:
        assert look(str(tmp_path / "absent")) == Seen(0, [], None)

    def test_what_is_held_is_a_claim_without_an_outcome(self, tmp_path: Path) -> None:
        run = build.run(tmp_path)
        run.lock("main", 1)
        run.log("main", 1, build.line(41, loss=0.5))
        run.write("claimed/eval.1/1/step_1.pt", b"")
        run.outcome("step_1.pt", 1, step=1, scores={"eval/acc": 0.5})
        seen = look(str(run))
        assert (seen.step, [found["entry"] for found in seen.done], seen.held) == (41, ["step_1.pt"], None)
        run.write("claimed/eval.1/2/step_2.pt", b"")
        assert look(str(run)).held == Claim("eval", 1, 2, "step_2.pt")


def console(width: int, encoding: str = "utf-8", *, terminal: bool = False) -> tuple[Console, io.BytesIO]:
    data = io.BytesIO()
    file = io.TextIOWrapper(data, encoding=encoding, write_through=True)
    made = Console(
        file=file, width=width, force_terminal=terminal, color_system="256" if terminal else None,
        highlight=False, markup=False, emoji=False, soft_wrap=True, _environ={},
    )  # fmt: skip
    return made, data


@pytest.fixture
def evidence(tmp_path: Path) -> claims.Evidence:
    """A run of three checkpoints, the second one the best."""
    run = build.run(tmp_path)
    log = [build.line(step, {"train/loss": 1 / step, "train/acc": 1 - 1 / step}) for step in range(1, 301)]
    run.session("main", 1, *log)
    run.session("eval", 1)
    for step, acc in ((100, 0.5), (200, 0.75), (300, 0.75)):
        scores = {"eval/acc": acc, "eval/loss": 1 - acc, "eval/acc_low": acc - 0.1, "eval/acc_high": acc + 0.1}
        run.outcome(f"step_{step}.pt", 1, step=step, scores=scores, lag_steps=300 - step)
    return claims.Evidence(str(run), time.time_ns())


class TestReport:
    def test_the_table_has_a_line_a_checkpoint_and_marks_the_earliest_best(self, evidence: claims.Evidence) -> None:
        shown, data = console(100)
        shown.print(report.table(evidence, 100))
        header, _, *rows = data.getvalue().decode().splitlines()
        assert header.split() == ["step", "train/acc", "eval/acc", "95%", "eval/loss", "lag", "tries"]
        assert [row.split() for row in rows] == [
            ["100", "0.9900", "0.5000", "0.40-0.60", "0.5000", "200", "1"],
            ["200", "0.9950", "0.7500", "0.65-0.85", "0.2500", "100", "1", "best"],
            ["300", "0.9967", "0.7500", "0.65-0.85", "0.2500", "0", "1"],
        ]

    @pytest.mark.parametrize("width", [36, 60, 80, 200])
    def test_table_and_plot_fit_the_terminal(self, evidence: claims.Evidence, width: int) -> None:
        shown, data = console(width)
        shown.print(report.table(evidence, width))
        lines = data.getvalue().decode().splitlines() + report.plot(evidence, shown).splitlines()
        assert max(map(len, lines)) <= width

    def test_the_plot_has_both_curves_and_needs_no_more_than_the_encoding_has(self, evidence: claims.Evidence) -> None:
        shown, _ = console(80, "ascii")
        picture = report.plot(evidence, shown)
        assert picture.isascii()
        accuracy, loss = picture.split("train/loss (.)")
        assert accuracy.count("O") >= 4
        assert loss.count("O") >= 3
        assert accuracy.count(".") > 30

    def test_colours_are_for_terminals(self, evidence: claims.Evidence) -> None:
        assert "\x1b[" in report.plot(evidence, console(80, terminal=True)[0])
        assert "\x1b[" not in report.plot(evidence, console(80)[0])


class TestProgress:
    SEEN = Seen(60, [{"entry": "step_00030.joblib", "step": 30, "scores": {"eval/acc": 0.5}}], None)

    def test_a_pipe_gets_each_checkpoint_once(self) -> None:
        made, data = console(80)
        with progress.make(made, PLAN) as shown:
            for seen in (Seen(10, [], None), self.SEEN, self.SEEN, Seen(120, self.SEEN.done, None)):
                shown.update(seen)
        assert data.getvalue().decode().splitlines() == [
            "evaluated step_00030.joblib (1 of 4): eval/acc 0.5; training is at step 60",
            "training is done: 120 steps",
        ]

    @pytest.mark.parametrize("width", [40, 120])
    def test_a_terminal_gets_two_bars(self, width: int) -> None:
        made, data = console(width, terminal=True)
        with progress.make(made, PLAN) as shown:
            shown.update(self.SEEN)
            shown.say("a line of its own")
        out = data.getvalue().decode()
        assert "60/120" in out
        assert "1/4" in out
        assert "a line of its own" in out
        assert ("eval/acc 0.5 at step 30" in out) == (width == 120)


@pytest.mark.parametrize("there", [True, False])
def test_the_way_to_the_page_works_when_pasted(monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    checkout = Path(fsrun_package.__file__).parents[1]
    monkeypatch.setattr(sys, "argv", [str(checkout / ".venv/bin/fsrun"), "demo"])
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(report.importlib.util, "find_spec", lambda name: there or None)
    monkeypatch.chdir(checkout)
    output = io.StringIO()
    report.print_places(Console(file=output, width=200), at_best_nothing(), "runs")
    wanted = ".venv/bin/fsrun up runs" if there else "sh tools/setup web; .venv/bin/fsrun up runs"
    assert output.getvalue().splitlines()[-1] == f"In a browser, with charts: {wanted}"


def at_best_nothing() -> Any:
    """Evidence of a run that has no best checkpoint."""

    class Nothing:
        path = "runs/digits/one"

        def best(self) -> None:
            return None

    return Nothing()
