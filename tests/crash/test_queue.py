"""Everything that moves an entry, stopped after every operation that changes something; then another evaluator comes.

Afterwards every file that was handed over stands in exactly one place, every attempt has exactly one outcome, and
every entry was counted once.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fsrun.core import layout
from fsrun.core.states import OutcomeState
from fsrun.disk.fs import FileSystem, LocalFileSystem
from fsrun.disk.store import Store
from fsrun.run.entries import Evaluation, entries
from fsrun.run.handover import HandOver
from tests.support.clock import FakeClock
from tests.support.fs import Crash, FaultFS, crash_points
from tests.support.queue import (
    Context,
    HandSession,
    end,
    evaluator,
    hand_over_now,
    make_run,
    outcomes,
    put_plain,
    where,
)

pytestmark = pytest.mark.crash
Work = Callable[[Path, FileSystem], Any]
_numbers = itertools.count()


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where that can be: the many fsyncs of these tests say nothing there."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


def trainer(run: Path, fs: FileSystem) -> HandOver:
    session, store = HandSession(fs, str(run), "main", 1), Store(fs, str(run), "main", 1)
    # Who is stopped gets no answer: it is not waited for.
    return HandOver(session, store, warn=lambda _: None, wait=0.0 if isinstance(fs, FaultFS) else 60.0)


def fresh(tmp_path: Path) -> Path:
    return make_run(tmp_path / f"run{next(_numbers)}")


def start(context: Context, **options: Any) -> Evaluation:
    return entries(context, clock=FakeClock(), once=True, **options)


def evaluate_the_rest(run: Path, number: int, **options: Any) -> Context:
    """The crashed sessions are found dead, and another evaluator does what is left."""
    for name in os.listdir(run / "jobs"):
        job, session, kind = name.split(".")
        if kind == "lock" and job != "main":
            end(run, job, int(session), "crashed")
    context = evaluator(run, job="rescuer", number=number)
    drive(context, done, **options)
    return context


def check(run: Path, entries: int, best: int | None) -> None:
    """Every file has one end; ``best``: how many stand in best/ (None: there is no rule)."""
    places = where(run)
    assert set(places) <= {"best", "failed"}, places
    found: dict[str, dict[int, str]] = {}
    for (entry, attempt), outcome in outcomes(run).items():
        found.setdefault(entry, {})[attempt] = outcome.state
    for entry, attempts in found.items():
        states = [attempts[k] for k in sorted(attempts)]
        assert sorted(attempts) == list(range(1, len(attempts) + 1)), (entry, attempts)
        assert all(s not in ("done", "skipped") for s in states[:-1]), (entry, states)
        assert states[-1] in ("done", "skipped") or entry in places.get("failed", []), (entry, states)
    assert len(found) == entries, found
    if best is not None:
        assert len(places.get("best", [])) == best, places
    assert not list((run / "trash").iterdir())
    check_samples(run)


def check_samples(run: Path) -> None:
    """What an outcome names stands, whole; a file that none names belongs to an attempt that has its outcome."""
    ended = outcomes(run)
    for key, outcome in ended.items():
        if outcome.samples is not None:
            data = (run / "evals" / layout.samples_name(*key)).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (outcome.samples["size"], outcome.samples["sha256"])
    for name in os.listdir(run / "evals"):
        if (key := layout.parse_samples_name(name)) is not None:
            assert key in ended, name


def everywhere(tmp_path: Path, prepare: Work, work: Work, entries: int, best: int | None = None, keep: int = 1) -> None:
    """Stop ``work`` after and in the middle of each of its writes, and check what comes of it."""
    rule = {} if best is None else {"best": "max:acc", "keep": keep}

    for index, moment in points_of(tmp_path, prepare, work):
        run, fs = fresh(tmp_path), FaultFS()
        prepare(run, LocalFileSystem())
        fs.crash_at(index, moment)
        with pytest.raises(Crash):
            work(run, fs)
        evaluate_the_rest(run, 1, **rule)
        check(run, entries, best)
        before = where(run), set(outcomes(run))
        evaluate_the_rest(run, 2, **rule)
        assert (where(run), set(outcomes(run))) == before, (index, moment)


def points_of(tmp_path: Path, prepare: Work, work: Work) -> list[tuple[int, Any]]:
    def once(fs: FaultFS) -> None:
        run = fresh(tmp_path)
        prepare(run, LocalFileSystem())
        work(run, fs)

    points = crash_points(once, moments=("after", "torn"))
    assert len(points) > 4
    return points


def hand_over(*steps: int) -> Work:
    def prepare(run: Path, fs: FileSystem) -> None:
        ckpt = run.parent / f"{run.name}-ckpt"
        ckpt.mkdir(exist_ok=True)
        for step in steps:
            (ckpt / f"step_{step}.pt").write_bytes(b"%d" % step)
            hand_over_now(trainer(run, fs), ckpt / f"step_{step}.pt", step=step)

    return prepare


def evaluation(act: Callable[[Any], None], **options: Any) -> Work:
    return lambda run, fs: drive(evaluator(run, fs), act, **options)


def drive(context: Context, act: Callable[[Any], None], **options: Any) -> None:
    """Evaluate until a crash, after which nothing of the process may run."""
    evaluation = start(context, **options)
    try:
        for entry in evaluation:
            act(entry)
    except Crash:
        forget(evaluation)
        raise


def forget(evaluation: Evaluation) -> None:
    """The process is gone: nothing of it may run later."""
    evaluation._attempts.current, evaluation._closed = None, True


def done(entry: Any) -> None:
    entry.done({"acc": float(entry.step or 0)})


def done_with_samples(entry: Any) -> None:
    entry.done({"acc": float(entry.step or 0)}, samples=[{"prompt": entry.name}], report=True)


def fail_once(entry: Any) -> None:
    if entry.attempt == 1:
        entry.fail("no")
    else:
        done(entry)


def return_once(entry: Any) -> None:
    if entry.attempt == 1:
        entry.give_back()
    else:
        done(entry)


def test_a_done_entry_goes_to_best_and_the_worse_one_goes(tmp_path: Path) -> None:
    everywhere(tmp_path, hand_over(1, 2), evaluation(done, best="max:acc"), 2, 1)


def test_samples_are_whole_or_named_by_no_outcome(tmp_path: Path) -> None:
    everywhere(tmp_path, hand_over(1), evaluation(done_with_samples, best="max:acc"), 1, 1)


def test_samples_of_a_failed_attempt_are_whole_or_named_by_no_outcome(tmp_path: Path) -> None:
    def act(entry: Any) -> None:
        if entry.attempt == 1:
            entry.fail("no", samples=[{"prompt": "x"}])
        else:
            done_with_samples(entry)

    everywhere(tmp_path, hand_over(1), evaluation(act), 1)


def test_samples_are_whole_where_links_are_refused(tmp_path: Path) -> None:
    def work(run: Path, fs: FileSystem) -> None:
        assert isinstance(fs, FaultFS)
        fs.fail("link", match="evals/", error=errno.EPERM, times=1 << 30)
        drive(evaluator(run, fs), done_with_samples)

    everywhere(tmp_path, hand_over(1), work, 1)


def test_samples_of_a_second_file_of_one_name_are_never_taken_for_those_of_the_first(tmp_path: Path) -> None:
    def prepare(run: Path, fs: FileSystem) -> None:
        put_plain(run, "x_1.pt", b"1")
        first = start(evaluator(run, fs, job="first"), best="max:acc", keep=0)
        held = next(first)
        put_plain(run, "x_1.pt", b"2")
        second = start(evaluator(run, fs, job="second"))
        next(second)
        done_with_samples(held)
        forget(first)
        forget(second)

    def work(run: Path, fs: FileSystem) -> None:
        context = evaluator(run, fs, job="third")
        end(run, "second", 1, "crashed")
        drive(context, done_with_samples)

    everywhere(tmp_path, prepare, work, 2, 2, keep=0)


def test_a_done_entry_without_a_rule_is_deleted(tmp_path: Path) -> None:
    everywhere(tmp_path, hand_over(1), evaluation(done), 1)


def test_a_failed_attempt_is_made_again(tmp_path: Path) -> None:
    everywhere(tmp_path, hand_over(1), evaluation(fail_once, best="max:acc"), 1, 1)


def test_an_entry_is_given_up(tmp_path: Path) -> None:
    everywhere(tmp_path, hand_over(1), evaluation(lambda e: e.fail("never")), 1)


def test_a_returned_entry_is_taken_again(tmp_path: Path) -> None:
    everywhere(tmp_path, hand_over(1), evaluation(return_once, best="max:acc"), 1, 1)


def test_older_entries_are_skipped(tmp_path: Path) -> None:
    everywhere(tmp_path, hand_over(1, 2), evaluation(done, order="latest"), 2)


def test_two_uses_of_a_name_are_two_entries(tmp_path: Path) -> None:
    def prepare(run: Path, fs: FileSystem) -> None:
        put_plain(run, "x_1.pt", b"1")
        evaluation = start(evaluator(run, fs, job="first"), best="max:acc", keep=0)
        done(next(evaluation))
        put_plain(run, "x_1.pt", b"2")
        forget(evaluation)

    everywhere(tmp_path, prepare, evaluation(done), 2, 2, keep=0)


def test_a_name_used_again_within_one_session_is_never_taken_for_the_first_use(tmp_path: Path) -> None:
    def prepare(run: Path, fs: FileSystem) -> None:
        put_plain(run, "x_1.pt", b"1")

    def work(run: Path, fs: FileSystem) -> None:
        def act(entry: Any) -> None:
            done(entry)
            if entry.name == "x_1.pt":
                put_plain(run, "x_1.pt", b"2")

        drive(evaluator(run, fs), act, best="max:acc", keep=0)

    for index, moment in points_of(tmp_path, prepare, work):
        run, fs = fresh(tmp_path), FaultFS()
        prepare(run, fs)
        fs.crash_at(index, moment)
        with pytest.raises(Crash):
            work(run, fs)
        evaluate_the_rest(run, 1, best="max:acc", keep=0)
        kept = {p.name: p.read_bytes() for p in (run / "best").iterdir()}
        assert kept["x_1.pt"] == b"1", (index, moment)
        assert sorted(kept.values()) in ([b"1"], [b"1", b"2"]), (index, moment, kept)
        check(run, len(kept), len(kept))


@pytest.mark.parametrize("outcome", [None, OutcomeState.DONE])
def test_a_recovery_is_finished_by_the_next(tmp_path: Path, outcome: OutcomeState | None) -> None:
    def prepare(run: Path, fs: FileSystem) -> None:
        hand_over(1)(run, fs)
        inner = FaultFS()
        evaluation = start(evaluator(run, inner), best="max:acc")
        entry = next(evaluation)
        if outcome is not None:
            inner.on("rename", match="best/step_1.pt", before=lambda _: (_ for _ in ()).throw(Crash()))
            with pytest.raises(Crash):
                done(entry)
        forget(evaluation)
        end(run, "eval", 1, "crashed")

    def work(run: Path, fs: FileSystem) -> None:
        drive(evaluator(run, fs, job="second"), done)

    everywhere(tmp_path, prepare, work, 1, 1)


def test_an_adoption_is_finished_by_a_recoverer(tmp_path: Path) -> None:
    def work(run: Path, fs: FileSystem) -> None:
        context = evaluator(run, fs)
        evaluation = start(context, best="max:acc")
        try:
            entry = next(evaluation)
            context.session.go_on()
            evaluation._attempts.adopt()
            done_with_samples(entry)
        finally:
            forget(evaluation)

    everywhere(tmp_path, hand_over(1), work, 1, 1)


def test_a_unit_elsewhere_keeps_the_best_in_the_run(tmp_path: Path) -> None:
    def once(run: Path, unit: Path, fs: FileSystem) -> None:
        drive(evaluator(run, fs, unit=unit), done, best="max:acc")

    def ready() -> tuple[Path, Path]:
        number = next(_numbers)
        unit = tmp_path / f"unit{number}"
        run = make_run(tmp_path / f"run{number}", unit)
        (unit / "queue" / "step_1").mkdir()
        (unit / "queue" / "step_1" / "w").write_bytes(b"1")
        return run, unit

    for index, moment in crash_points(lambda fs: once(*ready(), fs), moments=("after", "torn")):
        (run, unit), fs = ready(), FaultFS()
        fs.crash_at(index, moment)
        with pytest.raises(Crash):
            once(run, unit, fs)
        end(run, "eval", 1, "crashed")
        rescuer = evaluator(run, number=2, unit=unit)
        for entry in start(rescuer, best="max:acc"):
            done(entry)
        assert (run / "best/step_1/w").read_bytes() == b"1"
        assert where(unit) == {}
        assert [o.state for o in outcomes(run).values()].count("done") == 1


@pytest.mark.parametrize("kind", ["link", "copy", "folder", "copied folder"])
def test_a_hand_over_is_whole_or_not_there(tmp_path: Path, kind: str) -> None:
    source = tmp_path / "step_5"
    if "folder" in kind:
        for name in ("a", "b/c"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(b"1234")
    else:
        source.write_bytes(b"1234")

    def work(run: Path, fs: FaultFS) -> None:
        if "cop" in kind:
            fs.fail("link", match="queue/", error=errno.EXDEV, times=1 << 30)
        hand_over_now(trainer(run, fs), source, step=5)

    points = crash_points(lambda fs: work(fresh(tmp_path), fs), moments=("after", "torn"))
    arrived = 0
    for index, moment in points:
        run, fs = fresh(tmp_path), FaultFS()
        fs.crash_at(index, moment)
        with pytest.raises(Crash):
            work(run, fs)
        context = evaluator(run)
        seen = []
        for entry in start(context):
            seen.append(entry.name)
            done(entry)
        assert seen in ([], ["step_5"]), (index, moment)
        assert context.warnings == [], (index, moment)
        arrived += bool(seen)
        retried = hand_over_now(trainer(run, LocalFileSystem()), source, step=5)
        assert retried in ("step_5", "step_5~2")
    assert 0 < arrived < len(points)


def test_finished_never_stands_without_what_was_handed_over_before_it(tmp_path: Path) -> None:
    source = tmp_path / "step_5.pt"
    source.write_bytes(b"5")
    caught: list[Any] = []
    previous, threading.excepthook = threading.excepthook, caught.append
    try:
        for index in range(12):
            run, fs = fresh(tmp_path), FaultFS()
            fs.crash_at(index)
            hand_over = HandOver(
                HandSession(fs, str(run), "main", 1), Store(fs, str(run), "main", 1), warn=lambda _: None, wait=0.02
            )
            hand_over.enqueue(source)
            hand_over.finish(timeout=0.02)
            hand_over.drain(0.1)
            names = set(os.listdir(run / "queue"))
            assert "FINISHED" not in names or "step_5.pt" in names
    finally:
        threading.excepthook = previous
    assert caught
