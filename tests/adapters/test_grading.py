"""Grading in processes: whatever a grader does, its answer has a grade or a reason, and the others are graded."""

import asyncio
import contextlib
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from fsrun.adapters.graders import Grade
from fsrun.adapters.grading import Clock, Grading, processor_time, spent, waited
from fsrun.adapters.gradings import Gradings
from fsrun.adapters.plan import EvalPlan, SetPlan
from fsrun.core.errors import UsageError

CODE = r"""
import os, signal, sys, time

def grader(answer, label, row):
    if answer == "sleep": time.sleep(600)
    if answer == "kill": os.kill(os.getpid(), signal.SIGKILL)
    if answer == "exit": os._exit(3)
    if answer == "sysexit": sys.exit(0)
    if answer == "raise": raise ValueError("no")
    if answer == "none": return None
    if answer == "stop": os.kill(os.getpid(), signal.SIGSTOP)
    if answer == "chdir": os.chdir("/"); return True
    if answer == "where": return os.getcwd() != "/"
    if answer == "alarm": signal.alarm(1); return True
    if answer == "memory":
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
        return len(bytearray(1 << 30)) > 0
    if answer == "garbage": os.write(int(sys.argv[3]), b"[1]\n"); time.sleep(600)
    if answer == "fork":
        if os.fork(): os._exit(0)
        time.sleep(600)
    if answer == "half": return {"score": 1, "extracted": "\ud83d"}
    if answer == "pid": return {"score": os.getpid()}
    if answer == "length": return len(answer)
    if answer == "row": return row["x"] == [1]
    return len(answer) if len(answer) > 1000 else answer == label

broken = 5
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(CODE)
    return f"{path}:grader"


@pytest.fixture
def grading(spec: str) -> Iterator[Grading]:
    made = Grading(spec, 30.0, 1)
    yield made
    made.close()


def grades(made: Grading, *answers: str, label: Any = "5", row: Any = None) -> list[Grade]:
    async def all_of_them() -> list[Grade]:
        return await asyncio.gather(*(made.grade(answer, label, row or {}) for answer in answers))

    return asyncio.run(all_of_them())


def test_graders_that_need_no_process_grade_at_once() -> None:
    for name, answer, label in (("exact", "x", "x"), ("numeric", "so 5.0", "5"), ("choice", "(B)", 1)):
        made = Grading(name)
        made.check()
        assert grades(made, answer, label=label)[0].correct is True
        assert grades(made, "y" * 100_000 + "\n\n#### 7", label=label)[0].correct is False
        made.close()


def test_an_unknown_name_and_limits_that_cannot_work_are_refused() -> None:
    with pytest.raises(UsageError, match=r"no grader 'gsm8k': exact, numeric, math, choice or FILE\.py:NAME"):
        Grading("gsm8k")
    with pytest.raises(UsageError, match="limit above 0"):
        Grading("exact", 0)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.py:grader", "no such file"),
        ("mine.py:nothing", "has no function"),
        ("mine.py:broken", "has no function"),
        ("raises.py:grader", "ZeroDivisionError"),
        ("exits.py:grader", "ended: exit 4"),
    ],
)
def test_a_grader_that_does_not_load_is_refused_at_the_start(spec: str, tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "raises.py").write_text("1 / 0")
    (tmp_path / "exits.py").write_text("import os; os._exit(4)")
    made = Grading(str(tmp_path / name))
    with pytest.raises(UsageError, match=said):
        made.check()
    made.close()


def test_whatever_a_grader_does_is_a_reason_and_the_next_is_graded(grading: Grading) -> None:
    found = grades(
        grading,
        "5",
        "kill",
        "exit",
        "sysexit",
        "raise",
        "none",
        "fork",
        "memory",
        "garbage",
        "chdir",
        "where",
        "6",
        "5",
    )
    assert found == [
        Grade(1.0, True),
        Grade(None, reason="the grader's process ended: killed by SIGKILL (out of memory?)"),
        Grade(None, reason="the grader's process ended: exit 3"),
        Grade(None, reason="the grader called sys.exit(0)"),
        Grade(None, reason="the grader raised ValueError: no"),
        Grade(None, reason="the grader returned nothing"),
        Grade(None, reason="the grader's process ended: exit 0"),
        Grade(None, reason="the grader raised MemoryError: "),
        Grade(None, reason="the grader's process answered with something else than a grade"),
        Grade(1.0, True),
        Grade(1.0, True),
        Grade(0.0, False),
        Grade(1.0, True),
    ]


def test_a_grader_over_its_limit_is_killed_and_replaced(spec: str) -> None:
    made = Grading(spec, 2.0, 1)
    before = grades(made, "pid")[0].score
    over = Grade(None, reason="took longer than 2 s")
    assert grades(made, "sleep", "5", "stop", "5") == [over, Grade(1.0, True), over, Grade(1.0, True)]
    assert before is not None
    assert not psutil.pid_exists(int(before))
    made.close()


def test_a_grader_is_found_again_after_the_directory_was_changed(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(spec).parent)
    made = Grading("mine.py:grader", 30.0, 1)
    monkeypatch.chdir("/")
    assert grades(made, "5", "kill", "5")[2] == Grade(1.0, True)
    made.close()


def test_a_grader_s_file_that_changed_since_the_plan_is_not_loaded_by_a_process_that_is_replaced(spec: str) -> None:
    path = Path(spec.rpartition(":")[0])
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    grading = Grading(spec, processes=1, sha256=digest)
    try:
        assert grades(grading, "5")[0].correct is True
        path.write_text("def grader(answer, label): return 1\n")
        assert grades(grading, "6")[0].correct is False
        assert grades(grading, "kill")[0].score is None
        assert grades(grading, "6")[0].reason == (
            f"{path}: changed since the plan was made; start the evaluation again to take it"
        )
    finally:
        grading.close()
    plan = EvalPlan((SetPlan("a", "x", grader=spec, grader_sha256=digest),))
    with Gradings(plan) as gradings, pytest.raises(UsageError, match="changed since the plan was made"):
        gradings.check()


def test_a_slow_answer_does_not_delay_the_others(spec: str) -> None:
    made = Grading(spec, 60.0, 2)

    async def race() -> None:
        slow = asyncio.create_task(made.grade("sleep", "5", {}))
        await asyncio.sleep(0)
        found = await asyncio.gather(*(made.grade("5", "5", {}) for _ in range(20)))
        assert [grade.score for grade in found] == [1.0] * 20
        assert not slow.done()
        slow.cancel()
        await asyncio.to_thread(made.close)

    asyncio.run(race())


def test_a_process_that_ended_between_two_answers_is_replaced(grading: Grading) -> None:
    pid = grades(grading, "pid")[0].score
    assert pid is not None
    process = psutil.Process(int(pid))
    process.kill()
    process.wait(30)
    assert grades(grading, "5")[0] == Grade(1.0, True)


def test_rows_megabytes_and_half_characters_get_there_and_back(grading: Grading) -> None:
    assert grades(grading, "row", row={"x": [1], "blob": b"\x00"})[0].correct is True
    assert grades(grading, "x" * 1_000_000)[0].score == 1_000_000.0
    assert grades(grading, "half")[0] == Grade(1.0, True, "?")
    assert grades(grading, "\ud83d", label="\ud83d")[0].correct is True
    reason = grades(grading, "5", row={"x": lambda: 1})[0].reason
    assert "the row cannot be handed to the grader" in str(reason)


def test_no_process_outlives_the_end(spec: str) -> None:
    made = Grading(spec, 60.0, 2)
    pids = {int(grade.score or 0) for grade in grades(made, *["pid"] * 8)}
    made.close()
    made.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)


HOLDER = """
import asyncio, sys
from fsrun.adapters.grading import Grading

async def main():
    made = Grading(sys.argv[1], 600.0, 1)
    print(int((await made.grade("pid", "", {})).score), flush=True)
    await made.grade("sleep", "", {})

asyncio.run(main())
"""


def test_no_process_outlives_a_killed_evaluator(spec: str) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, spec], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        grader = psutil.Process(int(holder.stdout.readline()))
    finally:
        holder.kill()
        holder.communicate()
    with contextlib.suppress(psutil.NoSuchProcess):
        # Where nobody collects orphans, it stays as a zombie.
        for _ in range(600):
            if grader.status() == psutil.STATUS_ZOMBIE:
                return
            time.sleep(0.1)
        pytest.fail("the grading process is still there")


def test_one_grading_serves_one_event_loop_after_another(grading: Grading) -> None:
    for _ in range(2):
        assert [grade.score for grade in grades(grading, *["5"] * 5)] == [1.0] * 5


def test_thinking_is_parted_from_what_is_graded(grading: Grading) -> None:
    assert grades(grading, "<think>6</think>5")[0] == Grade(1.0, True)
    assert grades(grading, "<think>5")[0] == Grade(0.0, False, reason="the thinking did not end")
    made = Grading("numeric")
    assert asyncio.run(made.grade("5", "5", {}, thinking=True)).reason == "the thinking did not end"
    assert asyncio.run(made.grade("5</think>6", "6", {}, thinking=True)).correct is True


def test_math_grades_in_processes_of_its_own() -> None:
    made = Grading("math", 60.0, 1)
    made.check()
    found = grades(made, r"\boxed{5}", "<think>so \\boxed{5}", r"\boxed{9^{9^{9^9}}}", "x" * 1_000_000 + r"\boxed{05}")
    made.close()
    assert [grade.correct for grade in found] == [True, False, False, True]


def test_time_without_a_processor_is_not_the_graders() -> None:
    assert spent(wall=30.0, waiting=25.0, computed=0.0, limit=10.0) is False
    assert spent(wall=30.0, waiting=15.0, computed=0.0, limit=10.0) is True
    assert spent(wall=10.5, waiting=0.0, computed=0.0, limit=10.0) is True
    assert spent(wall=50.5, waiting=50.0, computed=0.0, limit=10.0) is True
    assert spent(wall=30.0, waiting=None, computed=5.0, limit=10.0) is False
    assert spent(wall=30.0, waiting=None, computed=11.0, limit=10.0) is True


def test_what_a_process_used_is_read_from_the_system() -> None:
    assert (processor_time(os.getpid()) or 0) > 0
    assert processor_time(2**22 + 1) is None
    assert waited(2**22 + 1) is None
    clock = Clock(os.getpid())
    assert clock.wall() >= 0
    assert clock.computed() >= 0
    assert clock.is_over(1000) is False
