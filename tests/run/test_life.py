"""How real programs leave, and what their run folder then says (LIFE-04, LIFE-08, LIFE-10, ENV-08)."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import done, jobs, lines, program, read, ready, run_program, until

pytestmark = pytest.mark.multiprocess

OPEN = """
import fsrun, os, signal, sys, threading, time
def opened(**more):
    run = fsrun.init("p", run_id="r", **more)
    run.add_scalar({"train/loss": 0.5}, step=1)
    return run
"""
HOLD = "\nprint('ready', flush=True)\nwhile True: time.sleep(0.05)\n"


def end_of(root: Path, session: int = 1, job: str = "main") -> dict[str, Any]:
    return read(root / "p" / "r" / "jobs" / f"{job}.{session}.end")


@pytest.mark.parametrize(
    ("body", "exit_code", "status", "reason"),
    [
        ("with opened(): pass", 0, "finished", None),
        ("with opened(): sys.exit(0)", 0, "finished", None),
        ("with opened(): sys.exit(3)", 3, "failed", "exit 3"),
        ("with opened(): sys.exit('no data')", 1, "failed", "exit 1"),
        ("with opened(): 1 / 0", 1, "failed", "ZeroDivisionError: division by zero"),
        ("with opened(): raise KeyboardInterrupt", -signal.SIGINT, "failed", "interrupted"),
        ("with opened() as run: run.fail('diverged'); sys.exit(0)", 0, "failed", "diverged"),
        ("with opened() as run: run.finish(); print('after', flush=True); sys.exit(3)", 3, "finished", None),
        # Without a with block.
        ("run = opened()", 0, "finished", None),
        ("run = opened(); sys.exit(0)", 0, "finished", None),
        ("run = opened(); sys.exit(3)", 3, "failed", "exit 3"),
        ("run = opened(); 1 / 0", 1, "failed", "ZeroDivisionError: division by zero"),
        ("run = opened(); raise KeyboardInterrupt", -signal.SIGINT, "failed", "interrupted"),
        ("run = opened(); run.fail('diverged'); sys.exit(0)", 0, "failed", "diverged"),
        ("run = opened()\ntry: sys.exit(3)\nexcept SystemExit: pass", 0, "finished", None),
        (
            "run = opened()\ntry: 1 / 0\nexcept ZeroDivisionError: sys.excepthook(*sys.exc_info())",
            0,
            "finished",
            None,
        ),
        ("run = opened(); raise SystemExit(3)", 3, "finished", "SystemExit was raised, its code was not seen"),
    ],
)
def test_the_end_says_how_the_program_left(
    tmp_path: Path, body: str, exit_code: int, status: str, reason: str | None
) -> None:
    code, _, err = run_program(OPEN + body, tmp_path)
    end = end_of(tmp_path)
    assert (code, end["status"], end["reason"]) == (exit_code, status, reason), err
    assert jobs(tmp_path / "p" / "r") == ["main.1.end", "main.1.lock"]
    assert read(tmp_path / "p" / "r" / "run.json")["status"] == status
    assert end["summary"] == {"train/loss": 0.5}
    assert end["sizes"] == {"scalars/main.1.jsonl": os.path.getsize(tmp_path / "p" / "r" / "scalars" / "main.1.jsonl")}
    if "Zero" in str(reason):
        assert "ZeroDivisionError" in err, "the traceback is printed as without fsrun"
        assert "1 / 0" in end["error"]["traceback"] or "<string>" in end["error"]["traceback"]


@pytest.mark.parametrize(
    ("signum", "reason"), [(signal.SIGTERM, "terminated"), (signal.SIGHUP, "hangup")], ids=["TERM", "HUP"]
)
def test_a_signal_with_its_default_disposition_still_kills_and_is_written_down(
    tmp_path: Path, signum: int, reason: str
) -> None:
    with program(OPEN + "run = opened()" + HOLD, tmp_path) as process:
        ready(process)
        process.send_signal(signum)
        assert done(process)[0] == -signum
    assert (end_of(tmp_path)["status"], end_of(tmp_path)["reason"]) == ("failed", reason)
    assert [line["step"] for line in lines(tmp_path / "p" / "r")] == [1]


def test_a_signal_amid_logging_loses_no_line_that_was_acknowledged(tmp_path: Path) -> None:
    body = """
run = opened()
values = {f"x{i}": 1.0 for i in range(20)}
print("ready", flush=True)
step = 0
while True:
    run.add_scalar(values, step=step)
    step += 1
"""
    with program(OPEN + body, tmp_path) as process:
        ready(process)
        until(lambda: list((tmp_path / "p" / "r" / "scalars").glob("*")))
        process.send_signal(signal.SIGTERM)
        assert done(process)[0] == -signal.SIGTERM
    assert end_of(tmp_path)["reason"] == "terminated"
    log = tmp_path / "p" / "r" / "scalars" / "main.1.jsonl"
    size = end_of(tmp_path)["sizes"]["scalars/main.1.jsonl"]
    assert log.read_bytes()[:size].endswith(b"\n")
    assert len(lines(tmp_path / "p" / "r")) > 100


def test_two_signals_at_once_are_one_end(tmp_path: Path) -> None:
    with program(OPEN + "with opened():" + HOLD.replace("\n", "\n  "), tmp_path) as process:
        ready(process)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert done(process)[0] in (-signal.SIGTERM, -signal.SIGHUP)
    assert end_of(tmp_path)["reason"] in ("terminated", "hangup")


def test_a_main_thread_stuck_in_c_code_still_dies_by_the_signal(tmp_path: Path) -> None:
    # A second lock of a plain mutex waits for ever, without the GIL and without running a handler of Python.
    stuck = """
import ctypes
libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(256)
libc.pthread_mutex_init(mutex, None)
libc.pthread_mutex_lock(mutex)
print("ready", flush=True)
libc.pthread_mutex_lock(mutex)
"""
    with program(OPEN + "run = opened()" + stuck, tmp_path) as process:
        ready(process)
        process.send_signal(signal.SIGTERM)
        assert done(process)[0] == -signal.SIGTERM
    assert end_of(tmp_path)["reason"] == "terminated"


BEFORE = """
stop = []
signal.signal(signal.SIGTERM, lambda *_: (stop.append(1), print("user", flush=True)))
run = opened()
print("ready", flush=True)
while not stop: time.sleep(0.01)
"""
AFTER = """
stop = []
run = opened()
before = signal.getsignal(signal.SIGTERM)
signal.signal(signal.SIGTERM, lambda *a: (stop.append(1), print("user", flush=True), callable(before) and before(*a)))
print("ready", flush=True)
while not stop: time.sleep(0.01)
print("goes on", flush=True)
"""
USR1 = BEFORE.replace("SIGTERM", "SIGUSR1")
HANDS_OVER = """
open("a.pt", "w").close()
run.enqueue("a.pt")
"""


@pytest.mark.parametrize(
    ("body", "signum", "status", "reason"),
    [
        (BEFORE, signal.SIGTERM, "finished", None),
        (BEFORE + HANDS_OVER, signal.SIGTERM, "failed", "preempted"),
        (BEFORE + "run.finish_queue()\n", signal.SIGTERM, "finished", None),
        (BEFORE + "sys.exit(0)\n", signal.SIGTERM, "failed", "preempted"),
        (BEFORE + "run.finish('finished')\n", signal.SIGTERM, "finished", None),
        (AFTER + HANDS_OVER, signal.SIGTERM, "failed", "preempted"),
        (USR1 + HANDS_OVER, signal.SIGUSR1, "finished", None),
        (USR1 + "sys.exit(3)\n", signal.SIGUSR1, "failed", "preempted"),
    ],
    ids=["normal", "hands over", "queue finished", "exit 0", "said", "after, chained", "USR1", "USR1, exit 3"],
)
def test_the_users_own_handler_is_called_and_the_end_is_preempted(
    tmp_path: Path, body: str, signum: int, status: str, reason: str | None
) -> None:
    with program(OPEN + body, tmp_path) as process:
        ready(process)
        process.send_signal(signum)
        code, out, err = done(process)
    assert code in (0, 3), err
    assert "user" in out
    assert (end_of(tmp_path)["status"], end_of(tmp_path)["reason"]) == (status, reason)


def test_a_handler_installed_later_wins_and_ours_is_gone(tmp_path: Path) -> None:
    body = """
run = opened()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.kill(os.getpid(), signal.SIGTERM)
run.finish()
print(signal.getsignal(signal.SIGTERM) is signal.SIG_IGN, signal.getsignal(signal.SIGHUP) is signal.SIG_DFL)
print(sys.exit.__module__, sys.excepthook is sys.__excepthook__)
"""
    code, out, err = run_program(OPEN + body, tmp_path)
    assert (code, out.split()) == (0, ["True", "True", "sys", "True"]), err


def test_signals_that_are_ignored_stay_ignored(tmp_path: Path) -> None:
    body = "signal.signal(signal.SIGHUP, signal.SIG_IGN); run = opened(); os.kill(os.getpid(), signal.SIGHUP)"
    assert run_program(OPEN + body, tmp_path)[0] == 0
    assert end_of(tmp_path)["status"] == "finished"


def test_init_in_another_thread_takes_no_signal_and_ends_all_the_same(tmp_path: Path) -> None:
    body = """
thread = threading.Thread(target=opened)
thread.start()
thread.join()
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
"""
    assert run_program(OPEN + body, tmp_path)[0] == 0
    assert end_of(tmp_path)["status"] == "finished"


@pytest.mark.parametrize("close", ["", "; run.finish()"], ids=["at exit", "finish"])
def test_the_last_job_compacts_the_run(tmp_path: Path, close: str) -> None:
    # At exit threads can no longer be started, and some modules no longer be loaded.
    body = "run = opened()\nfor step in range(5000): run.add_scalar({'x': step / 2}, step=step)\n"
    code, out, err = run_program(OPEN + body + "print('ready')" + close, tmp_path, arrow=True)
    assert (code, out, err) == (0, "ready\n", "")
    assert (tmp_path / "p" / "r" / "data.parquet").exists()


@pytest.mark.parametrize("leave", ["os._exit(5)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_process_that_vanishes_writes_nothing_and_is_replaced_at_once(tmp_path: Path, leave: str) -> None:
    run_program(OPEN + "run = opened(timeout=600); run.flush(); " + leave, tmp_path)
    assert "main.1.end" not in jobs(tmp_path / "p" / "r")
    code, _, err = run_program(OPEN + "run = opened()", tmp_path)
    assert code == 0, err
    assert (end_of(tmp_path)["status"], end_of(tmp_path)["reason"]) == ("crashed", "proved dead")
    assert end_of(tmp_path, 2)["status"] == "finished"


def test_a_restart_by_execv_is_the_next_session(tmp_path: Path) -> None:
    body = """
run = opened(timeout=600)
run.flush()
if len(sys.argv) == 1:
    os.execv(sys.executable, [sys.executable, "-c", SOURCE, "again"])
"""
    source = OPEN + body
    code, _, err = run_program(f"SOURCE = {source!r}\n" + source.replace("SOURCE", "SOURCE"), tmp_path)
    assert code == 0, err
    assert end_of(tmp_path)["status"] == "crashed"
    assert end_of(tmp_path, 2)["status"] == "finished"


def test_a_forked_child_is_quiet_and_its_death_is_its_own(tmp_path: Path) -> None:
    body = """
run = opened()
pid = os.fork()
if pid == 0:
    run.add_scalar({"child": 1.0}, step=2)
    run.enqueue("nothing")
    run.finish_queue()
    run.finish()
    assert not run.active
    os.kill(os.getpid(), signal.SIGTERM)
assert os.waitpid(pid, 0)[1] == signal.SIGTERM
pid = os.fork()
if pid == 0:
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert run.active
time.sleep(1.5)
run.add_scalar({"train/loss": 0.25}, step=3)
"""
    code, _, err = run_program(OPEN + body, tmp_path)
    assert code == 0, err
    assert [line["step"] for line in lines(tmp_path / "p" / "r")] == [1, 3]
    assert end_of(tmp_path)["status"] == "finished"


def test_workers_that_are_forked_log_nothing(tmp_path: Path) -> None:
    body = """
import multiprocessing
run = opened()
def work(i):
    run.add_scalar({"worker": i}, step=i)
    return i * i
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(work, range(6)) == [0, 1, 4, 9, 16, 25]
"""
    code, _, err = run_program(OPEN + body, tmp_path)
    assert code == 0, err
    assert [line["step"] for line in lines(tmp_path / "p" / "r")] == [1]


MAIN_MODULE = """
import multiprocessing, os, sys
import fsrun
run = fsrun.init("p", run_id="r")
run.add_scalar({"at": 1.0}, step=os.getpid())
def work(fail):
    run.add_scalar({"worker": 1.0}, step=5)
    if fail:
        raise ValueError("the worker's own error")
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    process = context.Process(target=work, args=(len(sys.argv) > 2,))
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("fails", [False, True], ids=["works", "raises"])
def test_a_main_module_that_is_imported_again_opens_no_second_run(tmp_path: Path, method: str, fails: bool) -> None:
    script = tmp_path / "train.py"
    script.write_text(MAIN_MODULE)
    start = f"import os, sys; os.execv(sys.executable, [sys.executable, {str(script)!r}, *sys.argv[1:]])"
    code, _, err = run_program(start, tmp_path, method, *(["fail"] if fails else []))
    assert code == int(fails), err
    assert ("the worker's own error" in err) is fails
    assert [set(line) - {"step", "time"} for line in lines(tmp_path / "p" / "r")] == [{"at"}]
    assert jobs(tmp_path / "p" / "r") == ["main.1.end", "main.1.lock"]
    assert end_of(tmp_path)["reason"] == ("exit 1" if fails else None)


def test_a_main_module_without_its_guard_fails_as_without_fsrun_and_spawns_no_end(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(MAIN_MODULE.replace('if __name__ == "__main__":', "if True:"))
    start = f"import os, sys; os.execv(sys.executable, [sys.executable, {str(script)!r}, 'spawn'])"
    code, _, err = run_program(start, tmp_path)
    assert code == 1
    assert "bootstrapping phase" in err
    assert jobs(tmp_path / "p" / "r") == ["main.1.end", "main.1.lock"]


def test_several_runs_and_threads_end_together(tmp_path: Path) -> None:
    body = """
runs = [fsrun.init("p", run_id=f"r{i}") for i in range(3)]
def log(run):
    for step in range(500): run.add_scalar({"x": step}, step=step)
threads = [threading.Thread(target=log, args=(run,)) for run in runs for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
runs[1].fail("only this one")
"""
    code, _, err = run_program(OPEN + body, tmp_path)
    assert code == 0, err
    for i, status in enumerate(["finished", "failed", "finished"]):
        run = tmp_path / "p" / f"r{i}"
        assert read(run / "jobs" / "main.1.end")["status"] == status
        assert sorted(line["step"] for line in lines(run)) == sorted([*range(500)] * 2)


def test_a_second_live_process_is_refused_by_name(tmp_path: Path) -> None:
    with program(OPEN + "run = opened()" + HOLD, tmp_path) as holder:
        ready(holder)
        body = "try: opened()\nexcept fsrun.HeldError as error: print(error)"
        code, out, err = run_program(OPEN + body, tmp_path)
        assert code == 0, err
        assert f"process {holder.pid} on {os.uname().nodename}" in out


@pytest.mark.parametrize(
    "prelude",
    [
        "sys.argv.clear()",
        "del sys.argv",
        "sys.stdout = None; sys.stderr = None",
        "sys.stderr.close()",
        "os.environ.clear()",
        "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
    ],
)
def test_odd_interpreters_can_open_a_run(tmp_path: Path, prelude: str) -> None:
    body = f"\nroot = os.environ['FSRUN_ROOT']\n{prelude}\nwith opened(root=root): pass\n"
    code, _, err = run_program(OPEN + body, tmp_path)
    assert code == 0, err
    assert end_of(tmp_path)["status"] == "finished"


def test_a_user_without_a_name_and_a_home_can_open_a_run(tmp_path: Path) -> None:
    body = """
import pwd
def unknown(uid): raise KeyError(uid)
pwd.getpwuid = unknown
for name in ("USER", "LOGNAME", "LNAME", "USERNAME", "HOME"): os.environ.pop(name, None)
opened()
"""
    code, _, err = run_program(OPEN + body, tmp_path)
    assert code == 0, err
    assert read(tmp_path / "p" / "r" / "jobs" / "main.1.lock")["holder"]["user"] == str(os.getuid())


HANDLER = """
def handle(signum, frame):
    before = time.monotonic()
    WHAT
    os.write(1, f"took {time.monotonic() - before:.1f}\\n".encode())
    AFTER
signal.signal(signal.SIGTERM, handle)
run = opened()
values = {f"x{i}": i / 2 for i in range(10)}
print("ready", flush=True)
step = 0
while True:
    BODY
    step += 1
"""
TIGHT = "run.add_scalar(values, step=step)"
SAVES = """
    if step % 1000 == 0:
        open("a.pt", "w").close()
        run.enqueue("a.pt", step=step)
"""
FLUSHES = """
    if step % 1000 == 0: run.flush()
"""
IMAGES = "run.add_text('note', f'text {step}', step=step)"


@pytest.mark.parametrize(
    "after", ["sys.exit(5)", "os._exit(5)", "raise KeyboardInterrupt"], ids=["sys.exit", "os._exit", "interrupt"]
)
@pytest.mark.parametrize(
    "body", [TIGHT, TIGHT + SAVES.rstrip(), TIGHT + FLUSHES.rstrip()], ids=["tight loop", "enqueue", "flush"]
)
def test_a_handler_may_end_the_run_amid_any_call(tmp_path: Path, body: str, after: str) -> None:
    source = HANDLER.replace("WHAT", "run.finish()").replace("AFTER", after).replace("BODY", body)
    with program(OPEN + source, tmp_path) as process:
        ready(process)
        # By then a tight loop is ahead of the thread that encodes.
        until(lambda: any(p.stat().st_size > 1 << 22 for p in (tmp_path / "p" / "r" / "scalars").glob("*")))
        process.send_signal(signal.SIGTERM)
        _, out, err = done(process)
    took = float(out.split()[-1])
    assert took < 25, err  # 30 s are what a run may take whose folder hangs
    assert end_of(tmp_path)["status"] == "failed", err
    assert end_of(tmp_path)["reason"] == "preempted"
    assert "did not answer" not in err
    size = end_of(tmp_path)["sizes"].get("scalars/main.1.jsonl", 0)
    assert (tmp_path / "p" / "r" / "scalars" / "main.1.jsonl").read_bytes()[:size].endswith(b"\n")


def test_a_handler_that_comes_amid_other_work_ends_the_run_right_behind_it(tmp_path: Path) -> None:
    source = HANDLER.replace("WHAT", "run.finish()").replace("AFTER", "sys.exit(5)").replace("BODY", IMAGES)
    with program(OPEN + source, tmp_path) as process:
        ready(process)
        until(lambda: list((tmp_path / "p" / "r" / "media").glob("*")))
        process.send_signal(signal.SIGTERM)
        code, out, err = done(process)
    assert code == 5, err
    assert float(out.split()[-1]) < 25
    assert end_of(tmp_path)["status"] == "failed"


def test_a_handler_may_log_hand_over_and_flush_amid_any_call(tmp_path: Path) -> None:
    source = HANDLER.replace(
        "WHAT", "run.add_scalar({'y': 1.0}, step=step); run.enqueue('a.pt'); run.flush(); took.append(1)"
    )
    # The next signal comes once the handler is through: on a busy machine handlers would pile up without end.
    source = source.replace("AFTER", "signal.setitimer(signal.ITIMER_REAL, 0.02)")
    source = source.replace("while True", "took = []\nwhile len(took) < 20")
    source = source.replace("BODY", TIGHT).replace("signal.SIGTERM", "signal.SIGALRM")
    source = source.replace("print(", "signal.setitimer(signal.ITIMER_REAL, 0.02)\nprint(")
    source = "open('a.pt', 'w').write('weights')\n" + source + "signal.setitimer(signal.ITIMER_REAL, 0)\nrun.finish()\n"
    code, out, err = run_program(OPEN + source.replace("print(", "took = []; print("), tmp_path)
    assert (code, err) == (0, ""), out
    assert len([line for line in lines(tmp_path / "p" / "r") if "y" in line]) >= 20
    assert len(list((tmp_path / "p" / "r" / "queue").glob("a*.pt"))) >= 20
    assert end_of(tmp_path)["status"] == "finished"


def test_interrupts_amid_calls_leave_everything_usable(tmp_path: Path) -> None:
    # KeyboardInterrupt comes between any two steps of a call; a program that catches it goes on.
    source = """
open("a.pt", "w").write("weights")
run = opened()
def interrupt(*_): raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
logged, step, caught = 0, 2, 0
until = time.monotonic() + 2
while time.monotonic() < until:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.003)
        while True:
            run.add_scalar({f"x{i}": 1.0 for i in range(10)}, step=step)
            logged, step = step, step + 1
            if step % 50 == 0: run.enqueue("a.pt", step=step)
    except KeyboardInterrupt:
        caught += 1
before = time.monotonic()
assert run.flush(), "not durable"
name = run.enqueue("a.pt", step=step, name="last.pt")
# Behind hundreds whose calls were interrupted, on a slow disk, it may take more than the second that a call waits.
assert name in ("last.pt", None), name
run.finish()
assert time.monotonic() - before < 28, time.monotonic() - before
print(logged, caught)
"""
    code, out, err = run_program(OPEN + source, tmp_path)
    assert code == 0, err
    logged, caught = map(int, out.split())
    steps = {line["step"] for line in lines(tmp_path / "p" / "r")}
    assert set(range(1, logged + 1)) <= steps
    assert caught > 50
    assert (tmp_path / "p" / "r" / "queue" / "last.pt").exists()
    assert end_of(tmp_path)["status"] == "finished"


def test_a_process_that_was_stopped_does_not_replace_the_view_of_the_next_session(tmp_path: Path) -> None:
    view = tmp_path / "p" / "r" / "run.json"
    body = "run = opened(timeout=0.8)\nprint('ready', flush=True)\nfor i in range(2, 600):\n"
    # Each new tag is a reason to write the view.
    body += "    run.add_scalar({f'x{i}': 1.0}, step=i); time.sleep(0.02)\n"
    with program(OPEN + body, tmp_path) as process:
        ready(process)
        until(lambda: read(view)["step"] is not None and read(view)["step"] > 1)
        process.send_signal(signal.SIGSTOP)
        code, _, err = run_program(OPEN + "with opened(): pass", tmp_path)
        assert code == 0, err
        assert (read(view)["session"], read(view)["status"]) == (2, "finished")
        process.send_signal(signal.SIGCONT)
        assert process.stderr is not None
        assert any("LOGGING HAS STOPPED" in line for line in process.stderr)
    assert (read(view)["session"], read(view)["status"]) == (2, "finished")
    assert end_of(tmp_path)["status"] == "crashed"


@pytest.mark.parametrize("leave", ["run.finish()", "os.kill(os.getpid(), signal.SIGTERM); time.sleep(20)"])
def test_a_program_that_closes_all_descriptors_keeps_its_files_and_its_log(tmp_path: Path, leave: str) -> None:
    body = f"""
run = opened(); run.flush()
os.closerange(3, 64)
theirs = [open(f"{tmp_path}/theirs{{i}}", "wb", 0) for i in range(20)]
for step in range(2, 40): run.add_scalar("a", step, step)
run.flush()
{leave}
for file in theirs: file.write(b"x")
"""
    code, _, errors = run_program(OPEN + body, tmp_path, FSRUN_CAPTURE="0")
    assert code == (0 if leave.startswith("run") else -signal.SIGTERM), errors
    assert [line["step"] for line in lines(tmp_path / "p" / "r")] == list(range(1, 40))
    assert end_of(tmp_path)["status"] == ("finished" if leave.startswith("run") else "failed")
    if leave.startswith("run"):
        assert {file.read_bytes() for file in tmp_path.glob("theirs*")} == {b"x"}
