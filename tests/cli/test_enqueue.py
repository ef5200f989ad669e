"""``fsrun enqueue``: one checkpoint, a folder that is watched, FINISHED."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import build
from tests.support.command import fsrun, start


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short timeouts, and no data.parquet at the end of a run."""
    monkeypatch.setenv("FSRUN_COMPACT", "0")
    monkeypatch.setenv("FSRUN_TIMEOUT", "2")


@pytest.fixture
def run(tmp_path: Path) -> build.RunFolder:
    run = build.run(tmp_path)
    run.lock("main", 1)
    run.beat("main", 1)
    return run


@pytest.fixture
def ckpt(tmp_path: Path) -> Path:
    folder = tmp_path / "ckpt"
    folder.mkdir()
    for step in (1, 2):
        (folder / f"step_{step}.pt").write_bytes(b"weights")
    return folder


def queued(run: build.RunFolder) -> list[str]:
    return sorted(name for name in os.listdir(run.path / "queue") if not name.startswith("."))


def meta(run: build.RunFolder, entry: str) -> dict[str, object]:
    return json.loads((run.path / "meta" / f"{entry}.json").read_text())  # type: ignore[no-any-return]


def test_a_file_is_handed_over_by_link_with_its_meta(run: build.RunFolder, ckpt: Path, tmp_path: Path) -> None:
    run.session("main", 1)
    run.lock("main", 2)
    result = fsrun("enqueue", "big", ckpt / "step_2.pt", root=tmp_path)
    assert (result.exit_code, result.stdout) == (0, "step_2.pt\n")
    assert os.path.samefile(run.path / "queue" / "step_2.pt", ckpt / "step_2.pt")
    found = meta(run, "step_2.pt")
    assert (found["step"], found["main_session"], found["source"]) == (2, 2, str(ckpt / "step_2.pt"))
    assert queued(run) == ["step_2.pt"]
    assert sorted(os.listdir(run.path / "jobs")) == sorted(
        ["main.1.lock", "main.1.end", "main.2.lock", "main.1.00000001token.beat.0"]
    ), "it opens no session"


def test_step_and_name_can_be_given_and_a_name_is_used_once(run: build.RunFolder, ckpt: Path, tmp_path: Path) -> None:
    for entry in ("best.pt", "best~2.pt"):
        result = fsrun("enqueue", "big", ckpt / "step_1.pt", "--step", 70, "--name", "best.pt", root=tmp_path)
        assert result.stdout == f"{entry}\n"
        assert meta(run, entry)["step"] == 70


def test_a_folder_is_handed_over_whole(run: build.RunFolder, ckpt: Path, tmp_path: Path) -> None:
    (ckpt / "checkpoint-5" / "sub").mkdir(parents=True)
    (ckpt / "checkpoint-5" / "sub" / "a").write_bytes(b"x")
    assert fsrun("enqueue", "big", ckpt / "checkpoint-5", root=tmp_path).exit_code == 0
    assert (run.path / "queue" / "checkpoint-5" / "sub" / "a").read_bytes() == b"x"


def test_what_cannot_be_handed_over_is_exit_code_1_and_one_line(run: build.RunFolder, tmp_path: Path) -> None:
    result = fsrun("enqueue", "big", tmp_path / "nothing.pt", root=tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    assert "nothing.pt" in result.stderr
    assert queued(run) == []


def test_finish_names_the_newest_main_session(run: build.RunFolder, tmp_path: Path) -> None:
    run.end("main", 1)
    run.lock("main", 2)
    result = fsrun("enqueue", "big", "--finish", root=tmp_path)
    assert (result.exit_code, result.stdout) == (0, "FINISHED\n")
    assert json.loads((run.path / "queue" / "FINISHED").read_text())["main_session"] == 2
    assert json.loads(fsrun("show", "big", "--json", root=tmp_path).stdout)["queue"]["finished"] is True


@pytest.mark.parametrize(
    "arguments",
    [[], ["x", "--watch", "y"], ["--step", "3", "--finish"], ["--watch", "y", "--name", "z"],
     ["--watch", "y", "--glob", "a/*"], ["x", "--idle", "5s"], ["--finish", "--job", "watch"], ["x", "--ready", "y"],
     ["--watch", "y", "--job", "No"], ["--watch", "y", "--settle", "soon"]],
)  # fmt: skip
def test_arguments_that_do_not_go_together_are_wrong_usage(
    arguments: list[str], run: build.RunFolder, tmp_path: Path
) -> None:
    assert fsrun("enqueue", "big", *arguments, root=tmp_path).exit_code == 2


def test_watching_ends_when_main_has_finished_and_takes_what_is_there(
    run: build.RunFolder, ckpt: Path, tmp_path: Path
) -> None:
    (ckpt / "tmp-step_3.pt").write_bytes(b"x")
    run.end("main", 1)
    arguments = ("--watch", ckpt, "--glob", "*.pt", "--poll", "0.01s", "--settle", "0s", "--finish")
    result = fsrun("enqueue", "big", *arguments, root=tmp_path)
    assert (result.exit_code, result.stdout) == (0, "step_1.pt\nstep_2.pt\nFINISHED\n")
    assert queued(run) == ["FINISHED", "step_1.pt", "step_2.pt"]
    again = fsrun("enqueue", "big", *arguments, root=tmp_path)
    assert again.stdout == "FINISHED\n", "each once, by the metas"


def record(path: Path) -> dict[str, object]:
    return json.loads(path.read_text())  # type: ignore[no-any-return]


def test_a_watcher_beside_a_trainer_joins_as_a_side_job_that_evaluators_wait_for(
    run: build.RunFolder, ckpt: Path, tmp_path: Path
) -> None:
    run.end("main", 1)
    result = fsrun("enqueue", "big", "--watch", ckpt, "--poll", "0.01s", "--settle", "0s", root=tmp_path)
    assert result.exit_code == 0
    assert record(run.path / "jobs" / "watch.1.lock")["hands_over"] is True
    assert record(run.path / "jobs" / "watch.1.end")["status"] == "finished"
    assert not (run.path / "jobs" / "main.2.lock").exists()
    assert meta(run, "step_1.pt")["main_session"] == 1
    assert "as job watch of speech/big, until the main job has finished" in result.stderr


def test_for_a_trainer_that_knows_nothing_a_watcher_is_the_main_job_of_a_new_run_and_goes_on_with_it(
    ckpt: Path, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    arguments = ("--watch", ckpt, "--poll", "0.01s", "--settle", "0s", "--until-file", done, "--finish")
    done.touch()
    first = fsrun("enqueue", "vision/new", *arguments, root=tmp_path)
    assert (first.exit_code, first.stdout) == (0, "step_1.pt\nstep_2.pt\nFINISHED\n"), first.stderr
    path = tmp_path / "vision" / "new"
    lock, end = record(path / "jobs" / "main.1.lock"), record(path / "jobs" / "main.1.end")
    assert (lock["project"], lock["run"], lock["hands_over"], end["status"]) == ("vision", "new", True, "finished")
    assert record(path / "queue" / "FINISHED")["main_session"] == 1
    (ckpt / "step_3.pt").write_bytes(b"later")
    second = fsrun("enqueue", "new", *arguments, root=tmp_path)
    assert second.stdout == "step_3.pt\nFINISHED\n", second.stderr
    assert record(path / "queue" / "FINISHED")["main_session"] == 2
    assert record(path / "jobs" / "main.2.end")["status"] == "finished"


def test_an_id_alone_makes_no_run(ckpt: Path, tmp_path: Path) -> None:
    result = fsrun("enqueue", "new", "--watch", ckpt, root=tmp_path)
    assert (result.exit_code, "write PROJECT/new" in result.stderr) == (4, True)
    assert fsrun("enqueue", "vision/new", "--watch", ckpt, "--job", "watch", root=tmp_path).exit_code == 4
    assert not (tmp_path / "vision").exists()


def test_a_path_names_the_run_that_is_made(ckpt: Path, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere" / "vision" / "new"
    result = fsrun("enqueue", path, "--watch", ckpt, "--poll", "0.01s", "--settle", "0s", "--idle", "0.05s")
    assert (result.exit_code, result.stdout) == (0, "step_1.pt\nstep_2.pt\n")
    assert record(path / "jobs" / "main.1.end")["status"] == "finished"


def test_a_watcher_goes_on_with_a_run_whose_folders_were_renamed(ckpt: Path, tmp_path: Path) -> None:
    arguments = ("--watch", ckpt, "--poll", "0.01s", "--settle", "0s", "--idle", "0.05s")
    assert fsrun("enqueue", "vision/new", *arguments, root=tmp_path).exit_code == 0
    moved = tmp_path / "my exps" / "my copy"
    moved.parent.mkdir()
    (tmp_path / "vision" / "new").rename(moved)
    (ckpt / "step_3.pt").write_bytes(b"later")
    result = fsrun("enqueue", moved, *arguments)
    assert (result.exit_code, result.stdout) == (0, "step_3.pt\n"), result.stderr
    lock = record(moved / "jobs" / "main.2.lock")
    assert (lock["project"], lock["run"]) == ("vision", "new")
    assert not list((tmp_path / "vision").iterdir())
    assert [path.name for path in moved.parent.iterdir()] == ["my copy"]


def test_with_finish_sigterm_says_that_the_trainer_is_done(ckpt: Path, tmp_path: Path) -> None:
    with watching(ckpt, tmp_path, "--finish") as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"step_1.pt\n", b"step_2.pt\n"]
        (ckpt / "step_3.pt").write_bytes(b"the last one, not settled when the signal comes")
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == b"step_3.pt\nFINISHED\n"
        assert process.wait(60) == 0
    assert record(tmp_path / "vision" / "new" / "jobs" / "main.1.end")["status"] == "finished"


def test_without_finish_sigterm_means_that_the_watcher_has_to_go_and_may_come_back(ckpt: Path, tmp_path: Path) -> None:
    with watching(ckpt, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"step_1.pt\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    end = record(tmp_path / "vision" / "new" / "jobs" / "main.1.end")
    assert end["status"] == "failed", "evaluators wait for it to come back"


def test_a_watcher_that_was_killed_is_the_main_job_again_and_a_second_one_is_refused(
    ckpt: Path, tmp_path: Path
) -> None:
    with watching(ckpt, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"step_1.pt\n"
        refused = fsrun("enqueue", "new", "--watch", ckpt, root=tmp_path)
        assert (refused.exit_code, str(process.pid) in refused.stderr) == (3, True)
        process.kill()
        process.wait(60)
        again = fsrun("enqueue", "new", "--watch", ckpt, "--poll", "0.01s", "--settle", "0s", "--idle", "0s",
                      root=tmp_path)  # fmt: skip
    assert again.exit_code == 0, again.stderr
    assert record(tmp_path / "vision" / "new" / "jobs" / "main.2.lock")["hands_over"] is True


@contextmanager
def watching(ckpt: Path, root: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A real watcher of a new run; whatever happens, it is gone afterwards."""
    settings = ("--poll", "0.05s", "--settle", "0.2s", *arguments)
    process = start("enqueue", "vision/new", "--watch", ckpt, *settings, root=root)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def test_a_folder_is_ready_when_it_holds_what_was_asked_for(run: build.RunFolder, ckpt: Path, tmp_path: Path) -> None:
    for name in ("checkpoint-5", "checkpoint-6"):
        (ckpt / name).mkdir()
        (ckpt / name / "model.safetensors").write_bytes(b"x")
    (ckpt / "checkpoint-5" / "trainer_state.json").write_bytes(b"{}")
    run.end("main", 1)
    result = fsrun("enqueue", "big", "--watch", ckpt, "--glob", "checkpoint-*", "--ready", "trainer_state.json",
                   "--poll", "0.01s", "--settle", "0s", root=tmp_path)  # fmt: skip
    assert (result.exit_code, queued(run)) == (0, ["checkpoint-5"])
    assert "checkpoint-6 is not handed over: it holds no trainer_state.json" in result.stderr


def test_a_source_that_grows_after_it_was_handed_over_is_a_loud_warning(ckpt: Path, tmp_path: Path) -> None:
    (ckpt / "checkpoint-5").mkdir()
    (ckpt / "checkpoint-5" / "a").write_bytes(b"x")
    with watching(ckpt, tmp_path, "--glob", "checkpoint-*", "--finish") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"checkpoint-5\n"
        (ckpt / "checkpoint-5" / "b").write_bytes(b"late")
        assert process.stdout.readline() == b"checkpoint-5~2\n"
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read().decode()
    assert said.count("WARNING: checkpoint-5 was written on after it had been handed over") == 1


def test_watching_ends_when_another_process_wrote_finished(run: build.RunFolder, ckpt: Path, tmp_path: Path) -> None:
    fsrun("enqueue", "big", "--finish", root=tmp_path)
    result = fsrun("enqueue", "big", "--watch", ckpt, "--poll", "0.01s", "--settle", "0s", root=tmp_path)
    assert (result.exit_code, result.stdout) == (0, "step_1.pt\nstep_2.pt\n")


def test_watching_lingers_after_a_crash_of_main_as_long_as_it_is_told(
    run: build.RunFolder, ckpt: Path, tmp_path: Path
) -> None:
    run.end("main", 1, "crashed", reason="expired")
    result = fsrun(
        "enqueue", "big", "--watch", ckpt, "--poll", "0.01s", "--settle", "0s", "--linger", "0s", root=tmp_path
    )
    assert (result.exit_code, queued(run)) == (0, ["step_1.pt", "step_2.pt"])


def test_watching_goes_on_past_what_cannot_be_handed_over_and_fails_at_the_end(
    run: build.RunFolder, ckpt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsrun.run.outside import OutsideQueue

    real = OutsideQueue.enqueue

    def fail(self: OutsideQueue, path: str, **extra: object) -> str | None:
        return None if path.endswith("step_1.pt") else real(self, path, **extra)  # type: ignore[arg-type]

    monkeypatch.setattr(OutsideQueue, "enqueue", fail)
    run.end("main", 1)
    result = fsrun("enqueue", "big", "--watch", ckpt, "--poll", "0.01s", "--settle", "0s", "--finish", root=tmp_path)
    assert (result.exit_code, queued(run)) == (1, ["FINISHED", "step_2.pt"])


def test_a_watcher_takes_files_as_they_come_and_ends_at_sigterm(
    run: build.RunFolder, ckpt: Path, tmp_path: Path
) -> None:
    process = start("enqueue", "big", "--watch", ckpt, "--poll", "0.05s", "--settle", "0s", root=tmp_path)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stdout.readline() == b"step_1.pt\n"
        assert process.stdout.readline() == b"step_2.pt\n"
        (ckpt / "step_3.pt").write_bytes(b"new")
        assert process.stdout.readline() == b"step_3.pt\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.stdout.close()
        process.stderr.close()
        process.wait()


def test_a_unit_elsewhere_that_is_unreachable_is_not_written_to(tmp_path: Path, ckpt: Path) -> None:
    run = build.run(tmp_path, "far")
    run.lock("main", 1, unit={"path": str(tmp_path / "unit"), "host": "node7", "id": "abc"})
    result = fsrun("enqueue", "far", ckpt / "step_1.pt", root=tmp_path)
    assert (result.exit_code, "node7" in result.stderr) == (4, True)
    assert not (tmp_path / "unit").exists()


def test_a_run_of_a_newer_protocol_is_not_written_to(tmp_path: Path, ckpt: Path) -> None:
    run = build.run(tmp_path, "newer")
    run.lock("main", 1, protocol="2.0")
    assert fsrun("enqueue", "newer", ckpt / "step_1.pt", root=tmp_path).exit_code == 5
    assert queued(run) == []
