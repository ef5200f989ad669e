"""The frame of the command line: exit codes, one line an error, signals, pipes, lazy imports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fsrun.cli import COMMANDS, commands
from fsrun.core.errors import FsrunError, HeldError, InvalidError, NotFoundError, UsageError
from tests.support import build
from tests.support.command import ROOT, environment, fsrun, start

HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e\r\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FsrunError("x"), 1),
        (UsageError("x"), 2),
        (HeldError("x"), 3),
        (NotFoundError("x"), 4),
        (InvalidError("x"), 5),
        (OSError(28, "No space left on device", "/runs/a"), 1),
        (ZeroDivisionError("x"), 1),
    ],
)
def test_every_error_is_one_line_on_stderr_and_its_exit_code(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(commands.get_command(None, "ls"), "callback", fail)  # type: ignore[arg-type]
    result = fsrun("ls", root=tmp_path)
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.startswith("fsrun: ")
    assert result.stderr.count("\n") == 1


def test_an_error_cannot_drive_the_terminal(tmp_path: Path) -> None:
    result = fsrun("show", f"big{HOSTILE}", root=tmp_path)
    assert result.exit_code == 4
    assert result.stderr.isprintable() or result.stderr[:-1].isprintable()
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["nothing"], ["ls", "--nothing"], ["show"], ["export", "big"], ["logs", "big", "--session", "0"]]
)
def test_wrong_usage_is_exit_code_2_in_one_line_that_names_the_help(arguments: list[str], tmp_path: Path) -> None:
    result = fsrun(*arguments, root=tmp_path)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "--help)" in result.stderr


def test_no_such_run_names_the_root_searched(tmp_path: Path) -> None:
    for command in (["show", "big"], ["logs", "big"], ["check", "big"], ["compact", "big"], ["enqueue", "big", "x"]):
        result = fsrun(*command, root=tmp_path)
        assert (result.exit_code, str(tmp_path) in result.stderr) == (4, True), command


def test_root_goes_before_the_environment(tmp_path: Path) -> None:
    build.run(tmp_path / "here").session("main", 1)
    assert fsrun("show", "big", "--root", tmp_path / "here", root=tmp_path / "there").exit_code == 0


def test_a_run_is_found_by_id_by_project_and_id_and_by_path(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1)
    for name in ("big", "speech/big", run.path):
        result = fsrun("show", name, "--json", root=tmp_path)
        assert json.loads(result.stdout)["run"]["path"] == str(run.path)


def test_without_a_command_the_help_is_printed_and_the_usage_was_wrong() -> None:
    result = fsrun()
    assert result.exit_code == 2
    assert all(name in result.stderr for name in COMMANDS)


def test_help_and_version_are_printed_and_done() -> None:
    assert fsrun("--help").exit_code == 0
    assert fsrun("--version").stdout == "fsrun 0.1.0, protocol 1.0\n"
    for name in COMMANDS:
        assert fsrun(name, "--help").exit_code == 0, name


def test_ls_and_help_import_nothing_heavy(tmp_path: Path) -> None:
    build.run(tmp_path).session("main", 1)
    code = (
        "import sys\nfrom fsrun.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n    print(sorted({'pyarrow', 'rich', 'psutil', 'watchdog', 'numpy', 'filelock'} & set(sys.modules)))"
    )
    for arguments in (["ls"], ["--help"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=environment(tmp_path), capture_output=True, text=True, cwd=ROOT, timeout=120,
        )  # fmt: skip
        assert done.stdout.splitlines()[-1] == "[]", (arguments, done.stdout, done.stderr)


def test_a_run_may_be_named_by_the_start_of_its_id_or_as_the_latest(tmp_path: Path) -> None:
    for day, name in enumerate(("20260101-a", "20260102-b"), 1):
        build.run(tmp_path, name).session("main", 1, opened=f"2026-01-0{day}T00:00:00.000Z")
    for text, name in (("latest", "20260102-b"), ("20260101", "20260101-a"), ("speech/latest", "20260102-b")):
        result = fsrun("show", text, "--json", root=tmp_path)
        assert json.loads(result.stdout)["run"]["id"] == name
        assert result.stderr == f"fsrun: {text} is {tmp_path}/speech/{name}\n"
    assert fsrun("show", "2026", root=tmp_path).exit_code == 2
    build.run(tmp_path, "latest").session("main", 1, opened="2020-01-01T00:00:00.000Z")
    result = fsrun("show", "latest", "--json", root=tmp_path)
    assert (json.loads(result.stdout)["run"]["id"], result.stderr) == ("latest", "")


def test_a_record_of_the_wrong_type_is_named_with_its_file(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.lock("main", 1, timeout="soon")
    result = fsrun("enqueue", "big", "--finish", root=tmp_path)
    path = run.path / "jobs" / "main.1.lock"
    assert (result.exit_code, result.stderr) == (
        5, f"fsrun: {path}: lock: the key 'timeout' has the wrong type: 'soon'\n"
    )  # fmt: skip


def test_a_closed_pipe_ends_quietly_as_sigpipe_would(tmp_path: Path) -> None:
    for number in range(300):
        build.run(tmp_path, f"run-{number:03d}-{'x' * 100}").session("main", 1)
    process = start("ls", root=tmp_path)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(60), errors) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_with_128_and_its_number(number: signal.Signals, tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.lock("main", 1)
    run.beat("main", 1)
    run.write("files/output.main.1.log", "first\n")
    # Under nohup the child would inherit that the signal is ignored, and a command leaves that as it is.
    process = start("logs", "big", "-f", root=tmp_path, preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"first\n"
    process.send_signal(number)
    errors = process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    assert (process.wait(60), errors) == (128 + number, b"")


def test_a_full_disk_at_the_output_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    build.run(tmp_path).session("main", 1)
    with open("/dev/full", "wb") as full:
        process = start("show", "big", "--json", root=tmp_path, stdout=full)
        assert process.stderr is not None
        errors = process.stderr.read()
        process.stderr.close()
        assert process.wait(60) == 1
    assert errors.count(b"\n") == 1
    assert b"No space left" in errors


OWN = """
import atexit, ctypes, os, sys, threading, time
libc = ctypes.CDLL(None)
libc.__cxa_atexit(libc.abort, None, None)  # as a native library whose threads outlive what they need
atexit.register(lambda: print("after all", file=sys.stderr))
def late():
    time.sleep(0.2)
    print("a thread's last words", file=sys.stderr)
threading.Thread(target=late).start()
from fsrun.cli import main
main()
"""


def own(root: Path, *arguments: object, **more: object) -> subprocess.CompletedProcess[bytes]:
    """A real process whose native libraries would abort at its end."""
    command = [sys.executable, "-c", OWN, *map(str, arguments)]
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
    return subprocess.run(command, env=environment(root), cwd=ROOT, timeout=120, **settings)  # type: ignore[call-overload, no-any-return]


def test_no_native_library_can_spoil_the_end_of_a_command_that_has_said_all(tmp_path: Path) -> None:
    good, bad = build.run(tmp_path, "good"), build.run(tmp_path, "bad")
    for run in (good, bad):
        run.session("main", 1, build.lines(range(1000)))
    for _ in range(200):
        bad.log("main", 1, b"oops\n")
    for name, code in (("good", 0), ("bad", 5), ("none", 4)):
        process = own(tmp_path, "check", name)
        assert process.returncode == code, process.stderr
        assert process.stdout.decode() == fsrun("check", name, root=tmp_path).stdout
        last = process.stderr.decode().splitlines()
        assert last[-1] == "after all"
        assert "a thread's last words" in last
    shown = own(tmp_path, "export", "good", "-o", "-", "--format", "csv")
    assert (shown.returncode, shown.stdout.count(b"\n")) == (0, 1001)


SIGNALLED = """
import atexit, os, signal, sys, threading, time, traceback
import pyarrow
from fsrun.cli import main
atexit.register(lambda: print("after all", file=sys.stderr))
def late():
    main = threading.main_thread().ident
    while True:
        time.sleep(0.01)
        if "_shutdown" in [frame.name for frame in traceback.extract_stack(sys._current_frames()[main])]:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)  # again where it came just before the wait began: Python sees it when that is over
threading.Thread(target=late).start()
main()
"""


@pytest.mark.parametrize(("name", "code"), [("good", 128 + signal.SIGTERM), ("none", 4)])
def test_a_signal_at_the_very_end_leaves_no_exit_function_out(tmp_path: Path, name: str, code: int) -> None:
    build.run(tmp_path, "good").session("main", 1)
    command = [sys.executable, "-c", SIGNALLED, "show", name]
    process = subprocess.run(command, env=environment(tmp_path), cwd=ROOT, timeout=120, capture_output=True, text=True)
    assert process.returncode == code, process.stderr
    assert process.stderr.splitlines()[-2:] == ["fsrun: SIGTERM while waiting for threads", "after all"]


@pytest.mark.parametrize("arrow", ["import pyarrow", ""])
@pytest.mark.parametrize(("left", "code", "said"), [("'some words'", 1, "some words\n"), ("3", 3, ""), ("None", 0, "")])
def test_what_a_users_code_leaves_with_is_said_as_python_does(arrow: str, left: str, code: int, said: str) -> None:
    script = f"""
import fsrun.cli
{arrow}
def leave(*args, **extra): raise SystemExit({left})
fsrun.cli.commands.main = leave
fsrun.cli.main()
"""
    process = subprocess.run([sys.executable, "-c", script], cwd=ROOT, timeout=120, capture_output=True, text=True)
    assert (process.returncode, process.stderr) == (code, said)


def test_a_closed_pipe_ends_a_command_that_loaded_arrow_as_sigpipe_would(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1)
    for _ in range(50):
        run.log("main", 1, b"oops\n")
    read, write = os.pipe()
    os.close(read)
    try:
        process = own(tmp_path, "check", "big", stdout=write)
    finally:
        os.close(write)
    assert (process.returncode, process.stderr) == (128 + signal.SIGPIPE, b"a thread's last words\nafter all\n")
