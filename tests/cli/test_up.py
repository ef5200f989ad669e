"""``fsrun up`` as a real process: page and daemon begin and end together, and what cannot be is one clear line."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fsrun.cli.up import _existing
from fsrun.core.errors import FsrunError
from support import build
from support.command import fsrun
from support.programs import PATIENCE, until

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "0123456789-abcdef_"


class Up:
    """A root and the ``fsrun up`` that were started on it."""

    def __init__(self, folder: Path) -> None:
        self.root, self.folder = folder / "runs", folder
        build.run(self.root).session("main", 1)
        (folder / "runtime").mkdir()
        self.processes: list[subprocess.Popen[Any]] = []

    def environ(self) -> dict[str, str]:
        return os.environ | {"XDG_RUNTIME_DIR": str(self.folder / "runtime"), "PYTHONPATH": str(ROOT)}

    def start(
        self, *options: str, command: str = "up", through: tuple[str, str] = ("-m", "fsrun"), **environ: str
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *through, command, str(self.root), *options],
            env=self.environ() | environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def serve(self, *options: str, **environ: str) -> tuple[subprocess.Popen[str], str]:
        """A running one on a free port, and the address that it printed."""
        process = self.start("--port", "0", *options, **environ)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert f"fsrun shows {self.root} on http://" in line, process.communicate(timeout=PATIENCE)
        return process, line.split()[-1]

    def daemon(self) -> int | None:
        """Number of the process that watches the root, as it says itself."""
        for path in (self.folder / "runtime").glob("fsrun/*.status.json"):
            with contextlib.suppress(ValueError, OSError):
                return int(json.loads(path.read_text())["pid"])
        return None

    def await_daemon(self, but: int = 0) -> int:
        """The same, once there is one that is another than ``but``."""
        until(lambda: self.daemon() not in (None, but))
        return self.daemon() or 0


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    found = Up(tmp_path)
    yield found
    for process in found.processes:
        process.kill()
        process.communicate()


JOBS = """
import sys, time, fsrun
run = fsrun.init("speech", run_id="live", job=sys.argv[2], root=sys.argv[1], wait=60.0)
run.add_scalar({"a": 1.0}, step=7); run.flush(); time.sleep(600)
"""


HUNG = """
import signal, sys
sys.path.insert(0, sys.argv[2])
from fsrun.cli import _stop
from fsrun.cli.up import _serve
from fsrun.daemon.service import leave
from fsrun.web.app import make_app
from fsrun.web.server import Server, bind
from fsrun.web.site import Site
from support.fs import FaultFS
signal.signal(signal.SIGTERM, _stop)
fs = FaultFS()
site = Site(sys.argv[1], fs)
site.catalog.look()
fs.hang()
sockets = bind("localhost", 0)
began = lambda: print(f"http://localhost:{sockets[0].getsockname()[1]}/", flush=True)
leave(_serve(Server(make_app(site, limit=0.2), began), sockets))
"""
"""A page over a mount that hangs from the first request on."""


def get(address: str, **headers: str) -> Any:
    request = urllib.request.Request(address, headers=headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_job_is_shown_as_it_begins_logs_and_is_killed(up: Up) -> None:
    _, address = up.serve("--no-daemon")
    jobs = {}
    for name in ("main", "eval"):
        jobs[name] = subprocess.Popen([sys.executable, "-c", JOBS, str(up.root), name], env=up.environ())
        up.processes.append(jobs[name])

    def row() -> dict[str, Any]:
        rows = {row["key"]: row for row in get(f"{address}api/runs")["runs"]}
        return dict(rows.get("speech/live", {"jobs": []}))

    def statuses() -> list[tuple[str, str, bool]]:
        return [(job["job"], job["status"], job["silent_s"] is not None) for job in row()["jobs"]]

    until(lambda: statuses() == [("main", "running", True), ("eval", "running", True)])
    until(lambda: [job["step"] for job in row()["jobs"]] == [7, 7])
    assert row()["summary"] == {"a": 1.0}
    jobs["eval"].kill()
    jobs["eval"].wait()
    until(lambda: statuses() == [("main", "running", True), ("eval", "crashed", True)])


def test_a_mount_that_hangs_keeps_nobody_from_asking_and_from_ending_it(up: Up) -> None:
    command = [sys.executable, "-c", HUNG, str(up.root), str(ROOT / "tests")]
    process = subprocess.Popen(command, env=up.environ(), stdout=subprocess.PIPE, text=True)
    up.processes.append(process)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    for _ in range(3):
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(f"{address}api/runs/speech/big/evals")
        refused.value.close()
        assert refused.value.code == 503
    assert [row["key"] for row in get(f"{address}api/runs")["runs"]] == ["speech/big"]
    process.terminate()
    assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_page_and_daemon_end_with_a_signal(up: Up, number: signal.Signals, code: int) -> None:
    process, address = up.serve()
    daemon = up.await_daemon()
    until(lambda: get(f"{address}api/info")["daemon"])
    process.send_signal(number)
    assert process.wait(PATIENCE) == code
    assert not lives(daemon)


def test_the_daemon_ends_when_the_page_is_killed(up: Up) -> None:
    process, _ = up.serve()
    daemon = up.await_daemon()
    process.kill()
    process.wait()
    until(lambda: not lives(daemon))


def test_a_daemon_that_dies_is_started_again(up: Up) -> None:
    _, address = up.serve()
    info = get(f"{address}api/info")
    # From the first answer on: it is there, or about to be.
    assert bool(info["daemon"]) != info["awaits_daemon"]
    first = up.await_daemon()
    os.kill(first, signal.SIGKILL)
    assert lives(up.await_daemon(but=first))
    assert get(f"{address}api/info")["root"] == str(up.root)


def test_a_daemon_that_runs_already_stays(up: Up) -> None:
    other = up.start(command="daemon")
    up.await_daemon()
    process, address = up.serve()
    assert process.stderr is not None
    # Where the package was built without npm, a line about charts comes first.
    said = next(line for line in process.stderr if not line.startswith("fsrun: no charts"))
    assert said == f"fsrun: a daemon runs on this host already (process {other.pid}); the page goes on with that one\n"
    assert get(f"{address}api/info")["daemon"]["pid"] == other.pid
    process.terminate()
    assert process.wait(PATIENCE) == 0
    assert other.poll() is None


def test_of_two_pages_the_one_that_is_left_has_a_daemon(up: Up) -> None:
    first, _ = up.serve()
    daemon = up.await_daemon()
    _, address = up.serve()
    assert get(f"{address}api/info")["daemon"]["pid"] == daemon
    first.kill()
    first.wait()
    assert lives(up.await_daemon(but=daemon))
    until(lambda: (get(f"{address}api/info")["daemon"] or {"pid": daemon})["pid"] != daemon)


def test_half_open_connections_keep_nobody_out_and_do_not_fill_the_log(up: Up) -> None:
    bound = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (128, 256)); "
    bound += "from fsrun.cli import main; sys.exit(main())"
    process = up.start("--port", "0", "--no-daemon", through=("-c", bound))
    assert process.stdout is not None
    assert process.stderr is not None
    address = process.stdout.readline().split()[-1]
    port = int(address.rstrip("/").rpartition(":")[2])
    with contextlib.ExitStack() as held:
        for _ in range(400):
            one = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
            one.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX")
        until(lambda: not get(f"{address}api/runs")["scanning"])
        assert [row["status"] for row in get(f"{address}api/runs")["runs"]] == ["finished"]
    process.terminate()
    _, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in err


def test_without_a_daemon_there_is_none(up: Up) -> None:
    process, address = up.serve("--no-daemon")
    until(lambda: not get(f"{address}api/runs")["scanning"])
    info = get(f"{address}api/info")
    assert (info["daemon"], info["awaits_daemon"], up.daemon()) == (None, False, None)
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_nothing_is_written_below_the_root(up: Up) -> None:
    before = {path: path.stat().st_mtime_ns for path in sorted(up.root.rglob("*"))}
    process, address = up.serve("--no-daemon")
    until(lambda: not get(f"{address}api/runs")["scanning"])
    for tail in ("", "/tags", "/evals", "/media", "/tables", "/artifacts", "/environment", "/files"):
        get(f"{address}api/runs/speech/big{tail}")
    process.terminate()
    process.wait(PATIENCE)
    assert {path: path.stat().st_mtime_ns for path in sorted(up.root.rglob("*"))} == before


def test_a_port_in_use_is_one_line_that_names_the_remedy(up: Up) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        process = up.start("--port", str(port))
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (3, "")
    assert err == (
        f"fsrun: port {port} of localhost is in use by another process; give another one, such as --port "
        f"{port + 1}, or --port 0 for any that is free\n"
    )
    assert up.daemon() is None


def test_beyond_this_machine_a_token_is_asked_for(up: Up) -> None:
    _, address = up.serve("--no-daemon", "--host", "0.0.0.0")
    place, _, token = address.partition("?token=")
    assert len(token) >= 32
    here = f"http://127.0.0.1:{place.rsplit(':', 1)[1].strip('/')}/"
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(f"{here}api/info")
    refused.value.close()
    assert refused.value.code == 401
    assert get(f"{here}api/info", Authorization=f"Bearer {token}")["root"] == str(up.root)


def test_the_token_can_be_given_and_asked_for_here(up: Up) -> None:
    _, address = up.serve("--no-daemon", "--token", FSRUN_TOKEN=TOKEN)
    assert address.endswith(f"/?token={TOKEN}")
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(address, timeout=PATIENCE) as answer:
        assert "token" not in answer.url
        assert answer.status == 200


@pytest.mark.parametrize("token", [TOKEN, ""])
def test_the_token_is_no_word_of_the_browser_that_is_opened(up: Up, token: str) -> None:
    told = up.folder / "told"
    browser = up.folder / "browser"
    # What a list of processes shows, and what the file is that it names.
    browser.write_text(
        f'#!/bin/sh\n{{ echo "$*"; f="${{1#file://}}"; test -f "$f" && ls -l "$f" && cat "$f"; }} >{told}.part\n'
        f"mv {told}.part {told}\n"
    )
    browser.chmod(0o755)
    options = ["--token"] if token else []
    process, address = up.serve("--no-daemon", "--open", *options, FSRUN_TOKEN=token, BROWSER=f"{browser} %s &")
    until(told.exists)
    word, *rest = told.read_text().splitlines()
    if not token:
        assert word == address
        return
    path = Path(word.removeprefix("file://"))
    assert (path.parent, token in word) == (up.folder / "runtime" / "fsrun", False)
    assert rest[0].startswith("-rw------- ")
    assert f'content="0; url={address}"' in rest[1]
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert not path.exists()


@pytest.mark.parametrize(
    "token", ["short", "x" * 15, "with a blank in it", "ümlaut-ümlaut-ümlaut", "semi;colon;semi;colon"]
)
def test_a_token_that_cannot_be_one_is_refused(up: Up, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSRUN_TOKEN", token)
    result = fsrun("up", up.root, "--port", "0", "--no-daemon")
    assert result.exit_code == 2
    assert "$FSRUN_TOKEN is to have 16" in result.stderr
    assert token not in result.stderr


def test_what_cannot_be_is_one_line(up: Up) -> None:
    for arguments, code, said in (
        ([up.root / "none"], 4, "no such folder"),
        ([up.root, "--port", "65536"], 2, "65536"),
        ([up.root, "--host", "203.0.113.1", "--port", "0"], 2, "is an address of this machine"),
        ([up.root, "--host", "no.such.host.invalid", "--port", "0"], 2, "is an address of this machine"),
    ):
        result = fsrun("up", *arguments)
        assert (result.exit_code, result.stdout) == (code, "")
        assert said in result.stderr
        assert result.stderr.count("\n") == 1


def test_a_root_that_hangs_is_one_error_within_a_limit() -> None:
    over = threading.Event()
    try:
        with pytest.raises(FsrunError, match=r"^/runs: its file system has not answered for 0\.05 s"):
            _existing("/runs", 0.05, lambda root: over.wait(PATIENCE))
    finally:
        over.set()


@pytest.mark.parametrize("package", ["uvicorn", "starlette"])
def test_without_the_extra_the_command_says_how_to_get_it(up: Up, package: str) -> None:
    # In a process of its own: what an import that failed leaves behind would be found by the tests after this one.
    code = f"import sys; sys.modules[{package!r}] = None; from fsrun.cli import main; main()"
    process = up.start(through=("-c", code))
    _, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert error.startswith(f"fsrun: the page needs {package}")
    assert error.endswith(": pip install 'fsrun[web]'\n")


def test_a_broken_installation_is_not_said_to_lack_an_extra(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsrun.web.server", None)
    result = fsrun("up", up.root)
    assert result.exit_code != 0
    assert "pip install" not in result.stderr
    assert isinstance(result.exception, ImportError) or "fsrun.web.server" in result.stderr
