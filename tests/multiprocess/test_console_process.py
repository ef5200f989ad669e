"""The console of real programs: what they print goes where it went, and is recorded, whatever dies or hangs."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import PATIENCE, environment, read, until

INIT = "import fsrun, os, subprocess, sys, time\nrun = fsrun.init('speech', run_id='big')\n"


def recording(root: Path, **more: str) -> dict[str, str]:
    return environment(root, FSRUN_CAPTURE="1", FSRUN_SYSTEM="0", FSRUN_ENVIRONMENT="0", **more)


@contextmanager
def program(code: str, root: Path, *, init: bool = True, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program that records its console; whatever happens, it is gone afterwards, and so is its relay."""
    settings: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    settings |= {"env": recording(root)} | options
    process = subprocess.Popen([sys.executable, "-c", (INIT if init else "") + code], cwd=root, **settings)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        until(lambda: not relays(root))


def run(code: str, root: Path, **options: Any) -> tuple[int, bytes, bytes]:
    with program(code, root, **options) as process:
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err


def relays(root: Path) -> list[int]:
    """The relays that record below ``root``."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if b"fsrun.run.relay" in line and os.fsencode(f"{root}/") in line:
            found.append(int(name))
    return found


def folder(root: Path) -> Path:
    return root / "speech" / "big"


def log(root: Path, job: str = "main", session: int = 1) -> str:
    return (folder(root) / "files" / f"output.{job}.{session}.log").read_text()


class Terminal:
    """A terminal with a program in it."""

    def __init__(self, code: str, root: Path, *, init: bool = True, size: tuple[int, int] = (31, 97)) -> None:
        self.master, slave = pty.openpty()
        self.resize(*size)
        self.text = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", (INIT if init else "") + code],
            cwd=root,
            env=recording(root, TERM="xterm"),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def expect(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while text not in self.text:
            assert time.monotonic() < deadline, f"no {text!r} in {self.text!r}"
            assert self._read(deadline), f"ended without {text!r}: {self.text!r}"

    def _read(self, deadline: float) -> bool:
        if not select.select([self.master], [], [], deadline - time.monotonic())[0]:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        self.text += data.decode()
        return bool(data)

    def send(self, text: str) -> None:
        os.write(self.master, text.encode())

    def end(self) -> int:
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            assert time.monotonic() < deadline
        return self.process.wait(PATIENCE)


@contextmanager
def terminal(code: str, root: Path, **options: Any) -> Iterator[Terminal]:
    opened = Terminal(code, root, **options)
    try:
        yield opened
    finally:
        opened.process.kill()
        opened.process.wait()
        os.close(opened.master)
        until(lambda: not relays(root))


# What is recorded.


def test_python_child_programs_and_c_code_are_recorded_and_shown_unchanged(tmp_path: Path) -> None:
    code = """
import ctypes, multiprocessing
sys.stdout.write("\\r10%\\r100%\\x1b[31m!\\x1b[0m\\n"); sys.stdout.flush()
os.system("echo shell; echo error >&2")
subprocess.run([sys.executable, "-c", "print('grandchild')"])
libc = ctypes.CDLL(None); libc.puts(b"from C"); libc.fflush(None)
process = multiprocessing.get_context("fork").Process(target=print, args=("forked",)); process.start(); process.join()
os.write(1, b"\\xff\\n")
libc.puts(b"held back by C")
print("last", end="")
run.finish()
print(" after")
"""
    status, out, err = run(code, tmp_path)
    assert (status, err) == (0, b"error\n")
    shown = b"\r10%\r100%\x1b[31m!\x1b[0m\nshell\ngrandchild\nfrom C\nforked\n\xff\n"
    assert out in (shown + b"lastheld back by C\n after\n", shown + b"held back by C\nlast after\n")
    recorded = log(tmp_path)
    assert {"100%!", "shell", "grandchild", "from C", "forked", "\\xff", "error"} <= set(recorded.splitlines())
    assert "held back by C" in recorded
    assert "last" in recorded
    assert "after" not in recorded
    assert os.readlink(folder(tmp_path) / "files" / "output.main.log") == "output.main.1.log"


def test_standard_output_and_error_in_one_file_keep_their_order(tmp_path: Path) -> None:
    code = "for i in range(200):\n    os.write(1 + i % 2, b'%d\\n' % i)"
    status, out, _ = run(code, tmp_path, stderr=subprocess.STDOUT)
    expected = "".join(f"{i}\n" for i in range(200))
    assert (status, out.decode(), log(tmp_path)) == (0, expected, expected)


def test_a_traceback_at_the_end_of_the_program_is_recorded(tmp_path: Path) -> None:
    status, _, err = run("print('x')\nraise ValueError('wrong')", tmp_path)
    assert (status, b"ValueError: wrong" in err) == (1, True)
    assert "ValueError: wrong" in log(tmp_path)


def test_the_next_session_has_a_log_of_its_own_and_the_link(tmp_path: Path) -> None:
    run("print('one')", tmp_path)
    run("print('two')", tmp_path)
    assert (log(tmp_path), log(tmp_path, session=2)) == ("one\n", "two\n")
    assert (folder(tmp_path) / "files" / "output.main.log").read_text() == "two\n"


def test_a_side_job_records_too(tmp_path: Path) -> None:
    run("print('training')", tmp_path)
    code = "import fsrun\nwith fsrun.init('speech', run_id='big', job='eval'):\n    print('evaluating')"
    assert run(code, tmp_path, init=False)[1] == b"evaluating\n"
    assert log(tmp_path, "eval") == "evaluating\n"


@pytest.mark.parametrize(
    ("option", "how", "printed"),
    [
        ("--function", "mine.py:f", ["Python", "shell"]),
        ("--command", """echo {path}; echo '{{"x": 1}}' > {out}""", ["queue.pt"]),
    ],
)
def test_what_an_evaluation_prints_is_the_console_of_its_job(
    tmp_path: Path, option: str, how: str, printed: list[str]
) -> None:
    code = """
for n in range(2): open(f"{n}.queue.pt", "w").write("x" * n); run.enqueue(f"{n}.queue.pt", step=n)
run.finish_queue()
"""
    assert run(code, tmp_path)[0] == 0
    (tmp_path / "mine.py").write_text(
        "import os\ndef f(path): print('Python'); os.system('echo shell'); return {'x': 1}"
    )
    result = subprocess.run(
        [sys.executable, "-m", "fsrun", "eval", "big", option, how],
        cwd=tmp_path,
        env=recording(tmp_path),
        capture_output=True,
        timeout=PATIENCE,
        text=True,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert sorted(log(tmp_path, "eval").splitlines()) == sorted(result.stdout.splitlines())
    for text in printed:
        assert result.stdout.count(f"{text}\n") == 2


def test_off_is_off(tmp_path: Path) -> None:
    assert (
        run("print(len(os.listdir('/proc/self/task')))", tmp_path, env=recording(tmp_path, FSRUN_CONSOLE="0"))[0] == 0
    )
    assert not (folder(tmp_path) / "files" / "output.main.1.log").exists()
    code = "import fsrun\nwith fsrun.init('speech', run_id='big', console=False): print('x')"
    assert run(code, tmp_path, init=False)[1] == b"x\n"
    assert os.listdir(folder(tmp_path) / "files") == []


def test_the_second_run_of_a_process_says_that_the_first_records(tmp_path: Path) -> None:
    code = """
two = fsrun.init("speech", run_id="two")
print("both"); two.finish(); print("one"); run.finish(); print("none")
with fsrun.init("speech", run_id="three"):
    print("three")
"""
    status, out, err = run(code, tmp_path)
    assert (status, out) == (0, b"both\none\nnone\nthree\n")
    assert err.count(b"its console is not recorded") == 1
    assert log(tmp_path).replace(err.decode(), "") == "both\none\n"
    assert (tmp_path / "speech/three/files/output.main.1.log").read_text() == "three\n"
    assert os.listdir(tmp_path / "speech/two/files") == []


# As without fsrun.


def test_a_terminal_stays_a_terminal_of_its_size(tmp_path: Path) -> None:
    code = """
print(sys.stdout.isatty(), sys.stderr.isatty(), os.get_terminal_size(1)[:], os.ttyname(0) != os.ttyname(1))
print("a\\tb\\r\\n\\x1b[31mred\\x1b[0m")
input("resized? ")
while os.get_terminal_size(2)[0] != 50: time.sleep(0.01)
run.finish()
print(sys.stdout.isatty(), os.ttyname(0) == os.ttyname(1))
"""
    with terminal(code, tmp_path) as there:
        there.expect("resized? ")
        there.resize(20, 50)
        there.send("\n")
        assert there.end() == 0
    assert there.text.startswith("True True (97, 31) True\r\na\tb\r\r\n\x1b[31mred\x1b[0m\r\n")
    assert there.text.endswith("True True\r\n")
    assert log(tmp_path).startswith("True True (97, 31) True\na\tb\nred\nresized? ")


@pytest.mark.parametrize("readline", ["", "import readline"])
def test_input_and_the_debugger_work_in_a_terminal(tmp_path: Path, readline: str) -> None:
    code = f"""
{readline}
print("before")
name = input("name? ")
print("hello", name)
breakpoint()
print("after")
"""
    with terminal(code, tmp_path) as there:
        there.expect("name? ")
        assert there.text.startswith("before\r\n")
        there.send("bob\n")
        there.expect("(Pdb) ")
        assert "hello bob\r\n" in there.text
        there.send("p name * 2\n")
        there.expect("'bobbob'")
        there.send("c\n")
        there.expect("after")
        assert there.end() == 0
    assert "hello bob\n" in log(tmp_path)
    assert "'bobbob'\n" in log(tmp_path)


def test_ctrl_c_ends_the_program_as_ever_and_is_recorded(tmp_path: Path) -> None:
    with terminal("print('started')\ntime.sleep(60)", tmp_path) as there:
        there.expect("started")
        there.send("\x03")
        there.expect("KeyboardInterrupt")
        assert there.end() == -signal.SIGINT
    assert "KeyboardInterrupt\n" in log(tmp_path)


def test_head_ends_the_program_as_without_fsrun(tmp_path: Path) -> None:
    code = """
try:
    for i in range(10**9): print("line", i)
except BrokenPipeError:
    os.write(2, b"broken\\n")
    os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
    run.finish()
    os._exit(7)
"""
    for capture in ("1", "0"):
        shell = f"{sys.executable} -c '{INIT.replace(chr(39), chr(34))}{code}'"
        result = subprocess.run(
            ["bash", "-c", f"({shell}; echo status $? >&2) | head -1"],
            env=recording(tmp_path, FSRUN_CONSOLE=capture),
            cwd=tmp_path,
            capture_output=True,
            timeout=PATIENCE,
        )
        assert (result.stdout, result.stderr) == (b"line 0\n", b"broken\nstatus 7\n")
    assert log(tmp_path).startswith("line 0\nline 1\n")


def test_a_child_program_learns_that_nobody_reads(tmp_path: Path) -> None:
    code = "status = subprocess.run(['yes']).returncode\nos.write(2, b'%d\\n' % status)"
    with program(code, tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.readline() == b"-13\n"


def test_the_programs_own_children_alone_are_waited_for(tmp_path: Path) -> None:
    code = """
for n in range(3):
    if not os.fork(): os._exit(0)
count = 0
try:
    while True:
        os.wait(); count += 1
except ChildProcessError:
    print(count == 3)
"""
    assert run(code, tmp_path)[:2] == (0, b"True\n")


def test_c_code_that_holds_the_interpreter_prints_more_than_any_pipe_takes(tmp_path: Path) -> None:
    code = """
import ctypes
data = b"x" * 79 + b"\\n"
ctypes.PyDLL(None).write(1, ctypes.c_char_p(data * 100_000), 8_000_000)
"""
    status, out, _ = run(code, tmp_path)
    assert (status, out) == (0, (b"x" * 79 + b"\n") * 100_000)
    assert log(tmp_path) == out.decode()


@pytest.mark.parametrize(
    "before",
    [
        "os.close(1)",
        "os.close(1); os.close(2)",
        "os.close(0); os.close(1)",
        "sys.stdout = sys.stderr = None",
        "sys.stdout.close()",
        "sys.stdout = type('Tee', (), {'write': lambda self, text: len(text)})()",
        "os.dup2(os.open('/dev/null', os.O_RDONLY), 1)",
    ],
)
def test_a_closed_missing_or_replaced_output_is_no_error(tmp_path: Path, before: str) -> None:
    code = f"""
import os, sys
import fsrun
{before}
run = fsrun.init("speech", run_id="big")
try: print("printed", flush=True)
except Exception: pass
os.system("echo child >&2")
run.add_scalar("x", 1.0, 1)
run.finish()
os._exit(5 if os.path.exists(run.path + "/jobs/main.1.end") else 6)
"""
    assert run(code, tmp_path, init=False)[0] == 5
    assert read(folder(tmp_path) / "jobs" / "main.1.end")["status"] == "finished"
    if "close(2)" not in before:
        assert "child\n" in log(tmp_path)


def test_the_end_puts_back_only_what_is_still_ours(tmp_path: Path) -> None:
    code = """
import contextlib, io
inner = io.StringIO()
saved, target = os.dup(1), os.open("other", os.O_WRONLY | os.O_CREAT)
os.dup2(target, 1)
with contextlib.redirect_stdout(inner):
    run.finish()
    assert sys.stdout is inner
os.write(1, b"to the other\\n")
os.dup2(saved, 1)
os.write(1, b"unwound in the other order\\n")
"""
    status, out, err = run(code, tmp_path)
    assert (status, out, err) == (0, b"unwound in the other order\n", b"")
    assert (tmp_path / "other").read_bytes() == b"to the other\n"


def test_descriptors_that_the_program_closed_behind_our_back_are_left_alone(tmp_path: Path) -> None:
    code = """
print("one", flush=True)
time.sleep(0.2)
os.closerange(3, 200)
files = [os.open(f"mine{n}", os.O_RDWR | os.O_CREAT) for n in range(60)]
print("two", flush=True)
run.finish()
os.system("echo three")
assert all(os.path.getsize(f"mine{n}") == 0 for n in range(60))
"""
    status, out, err = run(code, tmp_path)
    assert (status, out) == (0, b"one\ntwo\nthree\n"), err


def test_a_program_that_replaces_itself_goes_on_printing(tmp_path: Path) -> None:
    code = """
import fsrun, os, sys
run = fsrun.init("speech", run_id="big")
print("session", len([n for n in os.listdir(run.path + "/jobs") if n.endswith("lock")]), flush=True)
if len(sys.argv) == 1: os.execv(sys.executable, [sys.executable, __file__, "again"])
"""
    (tmp_path / "train.py").write_text(code)
    result = subprocess.run(
        [sys.executable, "train.py"], env=recording(tmp_path), cwd=tmp_path, capture_output=True, timeout=PATIENCE
    )
    assert (result.returncode, result.stdout) == (0, b"session 1\nsession 2\n")
    until(lambda: not relays(tmp_path))
    assert log(tmp_path, session=2) == "session 2\n"


# What dies, hangs or is full.


def test_all_that_a_killed_trainer_printed_is_recorded(tmp_path: Path) -> None:
    code = "print('line\\n' * 1000, end='', flush=True)\nos.write(2, b'now\\n')\ntime.sleep(60)"
    with program(code, tmp_path) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"now\n"
        process.kill()
        process.wait()
        until(lambda: not relays(tmp_path))
    assert log(tmp_path).replace("now\n", "") == "line\n" * 1000


def test_a_killed_relay_costs_no_output(tmp_path: Path) -> None:
    code = """
child = subprocess.Popen(["sh", "-c", "echo child one; read x; echo child two"], stdin=subprocess.PIPE)
print("one", flush=True)
sys.stdin.readline()
for i in range(20000): print("two", i)
child.communicate(b"x")
run.finish()
print("three")
"""
    with program(code, tmp_path, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert {process.stdout.readline() for _ in range(2)} == {b"one\n", b"child one\n"}
        (relay,) = relays(tmp_path)
        os.kill(relay, signal.SIGKILL)
        assert process.stderr is not None
        assert b"not recorded any more" in process.stderr.readline()
        out, err = process.communicate(b"\n", timeout=PATIENCE)
    lines = out.decode().splitlines()
    assert [line for line in lines if line.startswith("two")] == [f"two {i}" for i in range(20000)]
    assert {"child two", "three"} <= set(lines)
    assert (process.returncode, err) == (0, b"")


def test_a_child_that_stays_does_not_hold_the_end_up_and_keeps_its_output(tmp_path: Path) -> None:
    code = """
child = subprocess.Popen([sys.executable, "-c", "input(); print('still here')"], stdin=subprocess.PIPE)
import fsrun.run.capture
fsrun.run.capture.CONSOLE_WAIT = 30
began = time.monotonic()
run.finish()
print(time.monotonic() - began < 15, flush=True)
child.communicate(b"\\n")
"""
    status, out, err = run(code, tmp_path)
    assert (status, out, err) == (0, b"True\nstill here\n", b"")
    assert log(tmp_path) == ""


def test_a_reader_that_is_stuck_gets_all_of_it_later_in_order(tmp_path: Path) -> None:
    code = """
for i in range(19_000): print("x" * 59)  # more than the reader's pipe holds, and about as much as ours
run.finish()
os.write(2, b"finished\\n")
print("last")
"""
    with program(code, tmp_path) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"finished\n"
        out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, (b"x" * 59 + b"\n") * 19_000 + b"last\n")


def test_signals_for_the_whole_group_leave_the_relay_to_its_work(tmp_path: Path) -> None:
    code = """
for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT"):
    import signal; signal.signal(getattr(signal, name), lambda *a: print("got", a[0], flush=True))
print("ready", flush=True)
sys.stdin.read()
"""
    with program(code, tmp_path, stdin=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT):
            os.killpg(process.pid, signum)
            assert process.stdout.readline() == b"got %d\n" % signum
        process.communicate(b"", timeout=PATIENCE)
    assert log(tmp_path) == "ready\n" + "".join(f"got {n}\n" for n in (15, 2, 1, 10, 12, 3))


def test_a_folder_that_hangs_delays_neither_output_nor_end(tmp_path: Path) -> None:
    (folder(tmp_path) / "files").mkdir(parents=True)
    os.mkfifo(folder(tmp_path) / "files" / "output.main.1.log")
    code = """
for i in range(400_000): print("x" * 79)
sys.stdout.flush()
began = time.monotonic()
run.finish()
print(time.monotonic() - began < 25, time.monotonic() - began, file=sys.stderr)
"""
    with program(code, tmp_path) as process:
        out, err = process.communicate(timeout=PATIENCE)
        os.close(os.open(folder(tmp_path) / "files" / "output.main.1.log", os.O_RDONLY | os.O_NONBLOCK))
    assert (process.returncode, out) == (0, (b"x" * 79 + b"\n") * 400_000)
    assert err.startswith(b"True")


def test_lines_that_were_left_out_are_counted_in_the_log(tmp_path: Path) -> None:
    (folder(tmp_path) / "files").mkdir(parents=True)
    path = folder(tmp_path) / "files" / "output.main.1.log"
    os.mkfifo(path)
    code = "for i in range(400_000): print('x' * 79)\nprint('shown', flush=True)\nsys.stdin.read()\nprint('last')"
    with program(code, tmp_path, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == b"shown\n":
                break
        with path.open("rb") as fifo:
            assert process.stdin is not None
            data = fifo.read(12 << 20)
            process.stdin.close()
            data += fifo.read()
        process.wait(PATIENCE)
    lines = data.decode().splitlines()
    (mark,) = [line for line in lines if line.startswith("[fsrun: ")]
    kept = sum(line == "x" * 79 for line in lines)
    assert kept > 100_000
    assert abs(int(mark.split()[1]) + kept - 400_000) <= 2
    assert lines[-1] == "last"


@pytest.mark.parametrize("name", ["full", "a folder"])
def test_a_log_that_cannot_be_written_is_one_warning(tmp_path: Path, name: str) -> None:
    path = folder(tmp_path) / "files" / "output.main.1.log"
    path.parent.mkdir(parents=True)
    if name == "full":
        path.symlink_to("/dev/full")
    else:
        path.mkdir()
    status, out, err = run("print('x' * 79, flush=True)\ntime.sleep(2.5)", tmp_path)
    assert (status, out) == (0, b"x" * 79 + b"\n")
    assert err.count(b"the console cannot be recorded") == 1


def test_a_full_disk_under_the_original_is_the_programs_own_error(tmp_path: Path) -> None:
    code = """
try:
    while True: print("x" * 79, flush=True)
except OSError as error:
    os.write(2, os.strerror(error.errno).encode())
    os._exit(3)
"""
    with open("/dev/full", "wb") as full:
        status, _, err = run(code, tmp_path, stdout=full)
    assert (status, err) == (3, b"No space left on device")
