"""``run.environment`` and its way into the run folder: secrets, odd interpreters, bounds, and what a crash leaves."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import fsrun
from fsrun.disk import identity
from fsrun.disk.fs import LocalFileSystem
from fsrun.run import environment, git
from fsrun.run.environment import Environment, container, list_packages, note_start
from tests.documents.test_protocol import validator
from tests.support.clock import FakeClock
from tests.support.fs import Crash, FaultFS, crash_points
from tests.support.programs import PATIENCE, done, program, ready, until
from tests.support.programs import environment as variables

pytestmark = pytest.mark.unit

ON = {"FSRUN_CAPTURE": "1", "FSRUN_SYSTEM": "0", "FSRUN_CONSOLE": "0"}


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "files").mkdir(parents=True)
    return folder


def record(run_dir: Path, job: str = "main", session: int = 1) -> dict[str, Any]:
    return json.loads((run_dir / "files" / f"{job}.{session}.environment.json").read_text())  # type: ignore[no-any-return]


def recorded(run_dir: Path, said: list[str] | None = None) -> dict[str, Any]:
    warnings = [] if said is None else said
    part = Environment(LocalFileSystem(), FakeClock(), str(run_dir), "main", 1, warn=warnings.append)
    part.start()
    assert part.close(60.0)
    return record(run_dir)


def test_the_record_says_what_the_protocol_says_and_names_the_files_beside_it(run_dir: Path) -> None:
    said: list[str] = []
    found = recorded(run_dir, said)
    validator("environment").validate(found)
    assert said == []
    assert (found["host"], found["pid"]) == (identity.own().host, os.getpid())
    assert found["python"]["version"] == ".".join(map(str, sys.version_info[:3]))
    packages = (run_dir.parent / "run" / found["packages"]["path"]).read_text().splitlines()
    assert len(packages) == found["packages"]["count"] > 10
    assert any(line.startswith("psutil==") for line in packages)
    assert not list((run_dir / "files").glob(".tmp*"))


def test_changes_of_the_code_stand_beside_the_record(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = git.GitState({"commit": "a" * 40, "dirty": True}, b"diff --git a/x b/x\n")
    monkeypatch.setattr(git, "look", lambda folder, stop: state)
    found = recorded(run_dir)
    assert found["git"] == {"commit": "a" * 40, "dirty": True, "diff": "files/main.1.diff.patch"}
    assert (run_dir / "files" / "main.1.diff.patch").read_bytes() == b"diff --git a/x b/x\n"


def test_no_secret_reaches_the_folder_or_a_command_line(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    for arguments in (
        ("init", "-q"),
        ("remote", "add", "origin", "https://x:ghp_sekret5@github.com/o/r"),
        ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x", "--allow-empty"),
    ):
        subprocess.run(["git", *arguments], cwd=code, check=True)
    (code / "settings.py").write_text('API_KEY = "sekret7"\n')
    (code / ".env").write_text("plain=sekret8\n")
    subprocess.run(["git", "add", "-f", "."], cwd=code, check=True)
    # Every git that is started writes down its command line, as /proc shows it to others.
    tools = tmp_path / "tools"
    tools.mkdir()
    real = subprocess.run(["which", "git"], check=True, capture_output=True, text=True).stdout.strip()
    (tools / "git").write_text(f'#!/bin/sh\ncat /proc/$$/cmdline >> {tmp_path}/cmdlines\nexec {real} "$@"\n')
    (tools / "git").chmod(0o755)
    program_text = (
        "import argparse, os, sys, fsrun\n"
        "os.chdir(sys.argv.pop())\n"
        "sys.argv[1:] = ['--wandb-key', 'sekret1', '--hf-token=hf_sekret2']\n"
        "parser = argparse.ArgumentParser(); parser.add_argument('--wandb-key'); parser.add_argument('--hf-token')\n"
        "with fsrun.init('p', run_id='r', config=vars(parser.parse_args())) as run:\n"
        "    run.add_scalar({'x': 1.0}, step=1)\n"
    )
    (tmp_path / "train.py").write_text(program_text)
    found = run_python(
        tmp_path,
        *("train.py", "--api-key", "sekret9", str(code)),
        OPENAI_API_KEY="sekret3",
        http_proxy="http://u:sekret4@h",
        SLURM_JWT="sekret6",
        PATH=f"{tools}:{os.environ['PATH']}",
    )
    folder = tmp_path / "runs" / "p" / "r"
    assert found["git"]["remote"] == "https://x:***@github.com/o/r"
    assert "settings.py" in (folder / "files" / "main.1.diff.patch").read_text()
    everything = [path for path in folder.rglob("*") if path.is_file()]
    assert [path for path in everything if b"sekret" in path.read_bytes()] == []
    assert "diff" in (tmp_path / "cmdlines").read_text()
    assert "sekret" not in (tmp_path / "cmdlines").read_text()


INSIDE = "import fsrun\nwith fsrun.init('p', run_id='r') as run: run.add_scalar({'x': 1.0}, step=1)\n"


def run_python(tmp_path: Path, *arguments: str, text: str = "", **more: str) -> dict[str, Any]:
    subprocess.run(
        [sys.executable, *arguments],
        input=text,
        text=True,
        check=True,
        cwd=tmp_path,
        env=variables(tmp_path / "runs", **ON, **more),
        timeout=60,
    )
    return record(tmp_path / "runs" / "p" / "r")


def test_a_script_a_module_and_a_zipapp_show_their_command(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(INSIDE)
    found = run_python(tmp_path, "train.py", "--lr", "0.1")
    assert found["command"] == [sys.executable, "train.py", "--lr", "0.1"]
    assert found["script"] == str(tmp_path / "train.py")
    assert found["directory"] == str(tmp_path)


def test_a_module_shows_its_command(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__main__.py").write_text(INSIDE)
    assert run_python(tmp_path, "-m", "pkg", "x")["command"][1:] == ["-m", "pkg", "x"]


def test_a_zipapp_shows_its_command(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", INSIDE)
    found = run_python(tmp_path, "app.pyz")
    assert (found["command"][1:], found["script"]) == (["app.pyz"], str(tmp_path / "app.pyz" / "__main__.py"))


@pytest.mark.parametrize("arguments", [("-c", INSIDE), ("-",)])
def test_a_program_without_a_file_has_no_script(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    found = run_python(tmp_path, *arguments, text=INSIDE)
    assert (found["command"][1:], found["script"]) == ([*arguments], None)


@pytest.mark.parametrize(
    "before",
    [
        "import sys; del sys.argv, sys.orig_argv",
        "import sys; sys.argv = None; sys.orig_argv = []",
        "import sys; del sys.modules['__main__']",
        "import os, tempfile; os.chdir(tempfile.mkdtemp()); os.rmdir(os.getcwd())",
        "import os; os.environ.pop('HOME', None); os.environ.pop('USER', None)",
    ],
)
def test_odd_interpreters_are_recorded_as_best_they_can_be(tmp_path: Path, before: str) -> None:
    (tmp_path / "train.py").write_text(f"{before}\n{INSIDE}")
    found = run_python(tmp_path, str(tmp_path / "train.py"))
    validator("environment").validate(found)
    if "rmdir" in before:
        assert (found["directory"], found["script"]) == (None, str(tmp_path / "train.py"))


def test_a_user_without_an_entry_is_shown_by_number(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert recorded(run_dir)["user"] == str(os.getuid())


def test_a_name_that_is_no_text_is_recorded(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", os.fsdecode(b"caf\xe9.py"), "x" * 5000, *["y"] * 1000])
    command = recorded(run_dir)["command"]
    assert command[2] == "x" * 2000 + " [cut]"
    assert command[-1] == "[cut: 503 more]"


def test_arguments_that_are_no_list_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", "train.py")
    assert note_start({})[0]["arguments"] == []


@pytest.mark.parametrize(
    ("there", "groups", "kind"),
    [
        ("/.dockerenv", "", "docker"),
        ("/run/.containerenv", "", "podman"),
        ("/.singularity.d", "", "singularity"),
        ("", "1:memory:/kubepods/x", "kubernetes"),
        ("", "1:memory:/lxc/x", "lxc"),
        ("", "0::/init.scope", None),
    ],
)
def test_containers_are_told_by_what_they_leave(there: str, groups: str, kind: str | None) -> None:
    assert container(lambda path: groups, lambda path: path == there) == kind


def test_listing_packages_ends_with_the_run_and_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    assert list_packages(stop)[1] is False
    monkeypatch.setattr(environment, "_MAX_PACKAGES", 3)
    assert (len(list_packages(stop)[0]), list_packages(stop)[1]) == (3, True)
    stop.set()
    assert list_packages(stop) == ([], True)


def test_broken_installations_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        @property
        def metadata(self) -> Any:
            raise ValueError("no metadata")

    monkeypatch.setattr("importlib.metadata.distributions", lambda: [Broken(), Broken()])
    assert list_packages(threading.Event()) == ([], False)


def test_a_folder_that_hangs_holds_neither_the_start_nor_the_end_up(run_dir: Path) -> None:
    class Hanging(LocalFileSystem):
        def create(self, path: str, data: bytes) -> None:
            gate.wait(PATIENCE)
            raise OSError("hung")

    gate = threading.Event()
    part = Environment(Hanging(), FakeClock(), str(run_dir), "main", 1, warn=lambda message: None)
    part.start()
    assert part.close(0.5) is False
    gate.set()


def test_a_folder_that_refuses_is_tried_again_and_then_a_warning(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "STORE_RETRY", 0.01)
    said: list[str] = []
    part = Environment(LocalFileSystem(), FakeClock(), str(run_dir / "gone"), "main", 1, warn=said.append)
    part.start()
    assert part.close(60.0)
    assert len(said) == 1
    assert "the environment is not recorded" in said[0]


def test_stopped_at_any_step_the_record_names_only_files_that_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git, "look", lambda folder, stop: git.GitState({"commit": "a" * 40}, b"diff\n"))
    monkeypatch.setattr(environment, "list_packages", lambda stop: (["a==1"], False))
    count = 0

    def work(fs: FaultFS) -> Path:
        nonlocal count
        count += 1
        folder = tmp_path / f"run{count}"
        (folder / "files").mkdir(parents=True)
        Environment(fs, FakeClock(), str(folder), "main", 1, warn=lambda message: None)._put_all()
        return folder

    points = crash_points(work, moments=("before", "torn", "after"))
    assert len(points) > 20
    for index, moment in points:
        fs = FaultFS()
        fs.crash_at(index, moment)
        with pytest.raises(Crash):
            work(fs)
        folder = tmp_path / f"run{count}"
        for name in ("main.1.diff.patch", "main.1.packages.txt"):
            if (folder / "files" / name).exists():
                assert (folder / "files" / name).read_text() in ("diff\n", "a==1\n")
        if (folder / "files" / "main.1.environment.json").exists():
            found = record(folder)
            assert (folder / found["git"]["diff"]).exists()
            assert (folder / found["packages"]["path"]).exists()


# In a run.


def test_init_returns_before_anything_of_it_is_done_and_the_end_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**ON, "FSRUN_COMPACT": "0"}.items():
        monkeypatch.setenv(name, value)
    asked = threading.Event()
    go_on = threading.Event()

    def slow(folder: str, stop: threading.Event) -> None:
        asked.set()
        go_on.wait(90)

    monkeypatch.setattr(git, "look", slow)
    run = fsrun.init("p", run_id="r", root=tmp_path)
    files = Path(run.path, "files")
    assert asked.wait(90)
    assert list(files.iterdir()) == []
    go_on.set()
    run.finish()
    assert {path.name for path in files.iterdir()} == {"main.1.environment.json", "main.1.packages.txt"}
    reader = fsrun.open(run.path)
    assert reader.environment()["pid"] == os.getpid()
    assert (reader.environment("eval"), reader.environment("main", 2)) == ({}, {})


def test_each_session_has_its_own_and_the_newest_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**ON, "FSRUN_COMPACT": "0"}.items():
        monkeypatch.setenv(name, value)
    for number in (1, 2):
        monkeypatch.setenv("SLURM_JOB_ID", str(number))
        with fsrun.init("p", run_id="r", root=tmp_path, ranks="alone") as run:
            pass
    with fsrun.init("p", run_id="r", root=tmp_path, ranks="alone", environment=False) as run:
        pass
    reader = fsrun.open(run.path)
    assert reader.environment()["variables"]["SLURM_JOB_ID"] == "2"
    assert reader.environment(session=1)["variables"]["SLURM_JOB_ID"] == "1"


def test_a_git_that_hangs_does_not_hold_the_end_up_nor_outlive_it(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "git").write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    (tools / "git").chmod(0o755)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("c" * 40 + "\n")
    code = (
        "import time, fsrun; began = time.monotonic(); run = fsrun.init('p', run_id='r'); opened = time.monotonic()\n"
        "print('ready', flush=True); input(); ending = time.monotonic(); run.finish()\n"
        "print(opened - began, time.monotonic() - ending)"
    )
    with program(code, tmp_path, PATH=f"{tools}:{os.environ['PATH']}", **ON) as process:
        ready(process)
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip() != "")
        # stdin is empty, so input() ends the program by EOFError: the end is that of an exception.
        status, _, _ = done(process)
    assert status == 1
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    found = record(tmp_path / "p" / "r")
    assert (found["git"]["commit"], found["git"]["problem"]) == ("c" * 40, "the run ended first")


def test_a_killed_training_leaves_no_part_of_a_record(tmp_path: Path) -> None:
    code = "import time, fsrun; run = fsrun.init('p', run_id='r'); print('ready', flush=True); time.sleep(60)"
    with program(code, tmp_path, **ON) as process:
        ready(process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    for path in (tmp_path / "p" / "r" / "files").glob("main.1.*.json"):
        validator("environment").validate(json.loads(path.read_text()))


def test_a_run_that_ends_at_once_has_its_environment_and_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**ON, "FSRUN_COMPACT": "0", "FSRUN_SYSTEM": "10"}.items():
        monkeypatch.setenv(name, value)
    with fsrun.init("p", run_id="r", root=tmp_path) as run:
        pass
    reader = fsrun.open(run.path)
    assert reader.environment()["packages"]["count"] > 0
    assert "job/memory" in reader.system()["name"].to_pylist()


def test_other_ranks_leave_code_and_packages_to_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**ON, "FSRUN_COMPACT": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        with fsrun.init("p", run_id="r", root=tmp_path, ranks="all") as run:
            pass
    first, second = (fsrun.open(run.path).environment(job) for job in ("main", "rank1"))
    assert {"git", "packages"} <= first.keys()
    assert second.keys() == first.keys() - {"git", "packages"}
    validator("environment").validate(second)


def test_switched_off_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSRUN_COMPACT", "0")
    monkeypatch.setenv("FSRUN_CAPTURE", "1")
    with fsrun.init("p", run_id="r", root=tmp_path, capture=False) as run:
        run.add_scalar({"x": 1.0}, step=1)
    assert list(Path(run.path, "files").iterdir()) == []
    assert not Path(run.path, "system").exists()


def test_the_schema_refuses_a_record_without_its_session() -> None:
    with pytest.raises(jsonschema.ValidationError):
        validator("environment").validate({"protocol": "1.0"})
