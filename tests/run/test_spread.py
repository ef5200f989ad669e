"""One list from several processes: in order, complete whatever becomes of a child, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from fsrun.run.spread import SHARE, spread

PATHS = [f"/runs/run-{i}" for i in range(3 * SHARE + 7)]


HEAD = f"""
import os, sys, time
from fsrun.run.spread import spread
me, paths = os.getpid(), [f"/run-{{i}}" for i in range({len(PATHS)})]
os.sched_getaffinity = lambda process: {{0, 1, 2}}
"""
SHARED = len(PATHS) - 1
"""The last path, whose process is a child."""


def in_a_process(code: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter, which has no threads, as the command line has none."""
    return subprocess.run(command(code, tmp_path), capture_output=True, text=True, timeout=120, check=False)


def command(code: str, tmp_path: Path) -> list[str]:
    script = tmp_path / "script.py"
    script.write_text(HEAD + textwrap.dedent(code))
    return [sys.executable, str(script)]


def test_few_paths_or_threads_are_no_reason_for_a_process() -> None:
    assert spread(lambda path: os.getpid(), PATHS[: 2 * SHARE - 1]) == [os.getpid()] * (2 * SHARE - 1)
    assert set(spread(lambda path: os.getpid(), PATHS, most=1)) == {os.getpid()}
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert set(spread(lambda path: os.getpid(), PATHS)) == {os.getpid()}
    finally:
        done.set()
        thread.join()


def test_many_paths_are_shared_and_come_back_in_order(tmp_path: Path) -> None:
    found = in_a_process(
        """
        done = spread(lambda path: (path, os.getpid()), paths)
        assert [path for path, _ in done] == paths
        print(len({pid for _, pid in done}), me in {pid for _, pid in done})
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            print("no child is left")
        """,
        tmp_path,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == ["3 True", "no child is left"]


def test_more_processes_than_cores_where_the_folders_take_long_to_answer(tmp_path: Path) -> None:
    found = in_a_process(
        """
        import fsrun.run.spread as module
        os.sched_getaffinity = lambda process: {0}
        module.SHARE = module._TRIED = 5
        # Long beside what a busy machine keeps one waiting after a sleep.
        print(len(set(spread(lambda path: (time.sleep(0.2), os.getpid())[1], paths[:20]))))
        """,
        tmp_path,
    )
    assert found.stdout == "4\n", found.stderr


@pytest.mark.parametrize(
    "end", ["os.kill(os.getpid(), 9)", "os._exit(0)", "sys.exit(3)", "1 / 0"], ids=["killed", "gone", "exit", "error"]
)
def test_what_a_child_does_not_tell_is_done_here(end: str, tmp_path: Path) -> None:
    found = in_a_process(
        f"""
        def work(path):
            if path == paths[{SHARED}] and not os.path.exists("died"):
                open("died", "x")
                {end}
            return path
        os.chdir({str(tmp_path)!r})
        assert spread(work, paths) == paths
        assert os.path.exists("died")
        """,
        tmp_path,
    )
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize("what", ["fork", "pipe"])
def test_where_no_process_can_be_had_all_is_done_here(what: str, tmp_path: Path) -> None:
    found = in_a_process(
        f"""
        before, left = os.{what}, [1]
        def refuse():
            if not left:
                raise OSError(11, "no more")
            left.pop()
            return before()
        os.{what} = refuse
        descriptors = len(os.listdir("/proc/self/fd"))
        assert spread(lambda path: (path, os.getpid()), paths) != [(path, me) for path in paths]
        assert spread(lambda path: (path, os.getpid()), paths) == [(path, me) for path in paths]
        assert len(os.listdir("/proc/self/fd")) == descriptors
        """,
        tmp_path,
    )
    assert (found.returncode, found.stderr) == (0, "")


def test_children_of_whom_nothing_is_told_are_heard_all_the_same(tmp_path: Path) -> None:
    found = in_a_process(
        """
        import signal
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as some supervisors leave it
        assert spread(lambda path: path, paths) == paths
        def work(path):
            if path == paths[-1] and os.getpid() != me:
                os.kill(os.getpid(), 9)
            return path
        assert spread(work, paths) == paths
        """,
        tmp_path,
    )
    assert (found.returncode, found.stderr) == (0, "")


def test_children_of_a_parent_that_was_killed_stop(tmp_path: Path) -> None:
    code = """
        def work(path):
            if path in paths[:20]:
                return
            os.write(1, b"begun\\n")
            time.sleep(0.2)
        spread(work, paths)
        """
    with subprocess.Popen(command(code, tmp_path), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.kill()
        # Ends with the last of those that hold the pipe; a share has 195 paths, which nobody asks for any more.
        assert len(process.stdout.read().splitlines()) < 50


def test_an_error_of_the_work_is_raised_as_without_processes(tmp_path: Path) -> None:
    found = in_a_process(
        """
        def work(path):
            if path == paths[-1]:
                raise OSError(5, "broken", path)
        try:
            spread(work, paths)
        except OSError as error:
            print(error.filename == paths[-1])
        """,
        tmp_path,
    )
    assert found.stdout == "True\n", found.stderr


def test_an_interrupt_ends_the_children(tmp_path: Path) -> None:
    code = """
        def work(path):
            if path in paths[:20]:
                return
            os.write(1, f"{os.getpid()}\\n".encode())  # a line by one call: two processes share the pipe
            while True:  # one long sleep would not notice a signal that came just before it
                time.sleep(0.05)
        spread(work, paths)
        """
    with subprocess.Popen(command(code, tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        pids = {int(process.stdout.readline()) for _ in range(3)}
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert len(pids) == 3
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
