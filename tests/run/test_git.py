"""``run.git``: real repositories, ordinary and awkward (ENV-04): what is recorded, and that nothing was touched."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from fsrun.run import git
from tests.support.programs import program, ready, until

pytestmark = pytest.mark.unit

NEVER = threading.Event()


def run_git(folder: Path, *arguments: str) -> str:
    settings = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    done = subprocess.run(["git", *settings, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    run_git(folder, "init", "-q", "-b", "trunk")
    (folder / "train.py").write_text("a = 1\n")
    run_git(folder, "add", ".")
    run_git(folder, "commit", "-qm", "first")
    return folder


def look(folder: Path) -> git.GitState:
    state = git.look(str(folder), NEVER)
    assert state is not None
    return state


def digest(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file of a folder, its time and content."""
    return {
        str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def test_a_clean_repository_has_commit_and_branch_and_no_diff(repo: Path) -> None:
    state = look(repo)
    commit = run_git(repo, "rev-parse", "HEAD")
    assert state.facts == {
        "commit": commit,
        "branch": "trunk",
        "remote": None,
        "dirty": False,
        "cut": False,
        "problem": None,
    }
    assert state.diff == b""


def test_changes_staged_and_not_are_in_the_diff_and_the_repository_stays_untouched(repo: Path) -> None:
    (repo / "train.py").write_text("a = 2\n")
    (repo / "new.py").write_text("b = 1\n")
    run_git(repo, "add", "new.py")
    os.utime(repo / "train.py", (1, 1))  # the index knows another time, and a refresh would write it
    before = digest(repo)
    state = look(repo)
    assert digest(repo) == before
    assert state.facts["dirty"] is True
    assert b"-a = 1\n+a = 2\n" in state.diff
    assert b"+++ b/new.py" in state.diff


def test_files_that_were_only_touched_are_no_change_and_the_index_is_not_refreshed(repo: Path) -> None:
    os.utime(repo / "train.py", (1, 1))
    before = digest(repo)
    state = look(repo)
    assert (state.facts["dirty"], state.diff) == (False, b"")
    assert digest(repo) == before


def test_the_whole_repository_is_compared_from_a_folder_inside_it(repo: Path) -> None:
    (repo / "inner").mkdir()
    (repo / "train.py").write_text("a = 2\n")
    assert b"+a = 2" in look(repo / "inner").diff


def test_the_patch_restores_the_changes(repo: Path, tmp_path: Path) -> None:
    (repo / "train.py").write_text("a = 2\nb = 3\n")
    (tmp_path / "patch").write_bytes(look(repo).diff)
    run_git(repo, "checkout", "-q", "train.py")
    run_git(repo, "apply", str(tmp_path / "patch"))
    assert (repo / "train.py").read_text() == "a = 2\nb = 3\n"


def test_there_is_nothing_to_say_outside_of_a_repository(tmp_path: Path) -> None:
    assert git.look(str(tmp_path), NEVER) is None


def test_no_commit_yet(tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q", "-b", "trunk")
    (tmp_path / "x").write_text("x")
    facts = look(tmp_path).facts
    assert (facts["commit"], facts["branch"], facts["problem"]) == (None, "trunk", "there is no commit yet")


def test_a_detached_head_has_a_commit_and_no_branch(repo: Path) -> None:
    run_git(repo, "checkout", "-q", "--detach")
    facts = look(repo).facts
    assert (len(facts["commit"]), facts["branch"]) == (40, None)


def test_in_the_middle_of_a_rebase_the_branch_is_the_one_being_rebased(repo: Path) -> None:
    run_git(repo, "checkout", "-qb", "feature")
    (repo / "train.py").write_text("a = 'feature'\n")
    run_git(repo, "commit", "-qam", "feature")
    run_git(repo, "checkout", "-q", "trunk")
    (repo / "train.py").write_text("a = 'trunk'\n")
    run_git(repo, "commit", "-qam", "trunk")
    run_git(repo, "checkout", "-q", "feature")
    with pytest.raises(subprocess.CalledProcessError):
        run_git(repo, "rebase", "trunk")
    before = digest(repo)
    state = look(repo)
    assert (state.facts["branch"], state.facts["problem"]) == ("feature", None)
    assert b"<<<<<<<" in state.diff
    assert digest(repo) == before


def test_a_worktree_has_a_file_in_place_of_the_repository(repo: Path, tmp_path: Path) -> None:
    run_git(repo, "worktree", "add", "-qb", "side", str(tmp_path / "side"))
    (tmp_path / "side" / "train.py").write_text("a = 3\n")
    state = look(tmp_path / "side")
    assert (state.facts["branch"], len(state.facts["commit"])) == ("side", 40)
    assert b"+a = 3" in state.diff


def test_a_submodule_is_a_repository_of_its_own_and_shows_as_a_commit_outside(repo: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    run_git(outer, "init", "-q")
    run_git(outer, "submodule", "--quiet", "add", str(repo), "sub")
    run_git(outer, "commit", "-qm", "sub")
    (outer / "sub" / "train.py").write_text("a = 4\n")
    assert b"+a = 4" in look(outer / "sub").diff
    assert look(outer).facts["dirty"] is False
    run_git(outer / "sub", "commit", "-qam", "inner")
    assert b"+Subproject commit" in look(outer).diff


def test_an_index_lock_that_was_left_behind_is_in_nobodys_way(repo: Path) -> None:
    (repo / ".git" / "index.lock").write_text("")
    (repo / "train.py").write_text("a = 5\n")
    state = look(repo)
    assert (b"+a = 5" in state.diff, state.facts["problem"]) == (True, None)
    assert (repo / ".git" / "index.lock").exists()


def test_a_bare_repository_has_a_commit_alone(repo: Path, tmp_path: Path) -> None:
    run_git(tmp_path, "clone", "-q", "--bare", str(repo), "bare")
    state = look(tmp_path / "bare")
    assert (state.facts["commit"], state.diff) == (run_git(repo, "rev-parse", "HEAD"), b"")
    assert "bare" in state.facts["problem"]


def test_packed_references_are_read_without_git(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = run_git(repo, "rev-parse", "HEAD")
    run_git(repo, "pack-refs", "--all")
    run_git(repo, "worktree", "add", "-qb", "side", str(tmp_path / "side"))
    run_git(repo, "pack-refs", "--all")
    monkeypatch.setenv("PATH", str(tmp_path))
    for folder, branch in ((repo, "trunk"), (tmp_path / "side", "side")):
        facts = look(folder).facts
        assert (facts["commit"], facts["branch"]) == (commit, branch)
        assert "no git" in facts["problem"]


def test_a_repository_of_somebody_else_is_not_opened_and_its_commit_known(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = run_git(repo, "rev-parse", "HEAD")
    tools = tmp_path / "tools"
    tools.mkdir()
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    (tools / "git").write_text(f'#!/bin/sh\nGIT_TEST_ASSUME_DIFFERENT_OWNER=1 exec {real} "$@"\n')
    (tools / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    state = look(repo)
    assert (state.facts["commit"], state.diff) == (commit, b"")
    assert "dubious ownership" in state.facts["problem"]


def test_names_that_look_like_options_are_files(repo: Path) -> None:
    (repo / "-n").write_text("one\n")
    run_git(repo, "add", "--", "-n")
    run_git(repo, "commit", "-qm", "n")
    (repo / "-n").write_text("two\n")
    assert b"+two" in look(repo).diff


def test_a_binary_change_is_named_and_not_shown(repo: Path) -> None:
    (repo / "w.bin").write_bytes(bytes(range(256)))
    run_git(repo, "add", ".")
    run_git(repo, "commit", "-qm", "bin")
    (repo / "w.bin").write_bytes(bytes(reversed(range(256))))
    assert b"Binary files a/w.bin and b/w.bin differ" in look(repo).diff


def test_a_huge_notebook_is_named_and_its_content_is_not_taken(repo: Path) -> None:
    notebook = repo / "big.ipynb"
    notebook.write_text("{}\n")
    run_git(repo, "add", ".")
    run_git(repo, "commit", "-qm", "notebook")
    notebook.write_text("a line of a cell of the notebook\n" * 600_000)
    with notebook.open("ab") as file:
        file.truncate(300 << 20)
    with (repo / "untracked.ipynb").open("wb") as file:
        file.truncate(300 << 20)
    state = look(repo)
    assert b"Binary files a/big.ipynb and b/big.ipynb differ" in state.diff
    assert len(state.diff) < 10_000
    assert b"untracked" not in state.diff


def test_many_untracked_files_are_not_looked_at(repo: Path) -> None:
    for folder in range(20):
        (repo / f"data{folder}").mkdir()
        for name in range(200):
            (repo / f"data{folder}" / f"{name}.txt").touch()
    before = (repo / ".git" / "index").read_bytes()
    assert look(repo).facts["dirty"] is False
    assert (repo / ".git" / "index").read_bytes() == before


def test_a_diff_is_cut_at_its_limit_and_marked(repo: Path) -> None:
    for number in range(4):
        (repo / f"{number}.txt").write_text("")
    run_git(repo, "add", ".")
    run_git(repo, "commit", "-qm", "files")
    for number in range(4):
        (repo / f"{number}.txt").write_text("".join(f"line {i} of the file\n" for i in range(40_000)))
    state = look(repo)
    assert (state.facts["cut"], state.facts["dirty"]) == (True, True)
    assert "1 MiB" in state.facts["problem"]
    assert git.MAX_DIFF // 2 < len(state.diff) < git.MAX_DIFF + 200
    assert state.diff.endswith(b"[cut here by fsrun: the changes are larger than 1 MiB]\n")


def test_a_line_of_data_is_said_to_be_there(repo: Path) -> None:
    (repo / "train.py").write_text("a = 6\nimage = '" + "x" * 100_000 + "'\n")
    state = look(repo)
    assert b"+a = 6\n+[cut by fsrun: a line of 100012 characters]\n" in state.diff
    assert state.facts["cut"] is True


@pytest.mark.parametrize("name", [".env", "deep/.env.prod", "server.pem", "deep/ID_RSA", "credentials.json", ".netrc"])
def test_files_that_hold_secrets_are_left_out(repo: Path, name: str) -> None:
    (repo / "deep").mkdir()
    (repo / name).write_text("A=plain-sekret\n")
    (repo / "train.py").write_text("a = 6\n")
    run_git(repo, "add", "-f", ".")
    state = look(repo)
    assert b"+a = 6" in state.diff
    assert b"sekret" not in state.diff


def test_secrets_in_the_diff_and_the_remote_are_redacted(repo: Path) -> None:
    run_git(repo, "remote", "add", "fork", "https://h/fork")
    run_git(repo, "remote", "add", "origin", "https://x:ghp_sekret5@github.com/o/r")
    key = "-----BEGIN PRIVATE KEY-----\n" + "sekret7\n" * 500 + "-----END PRIVATE KEY-----\n"
    (repo / "train.py").write_text(f'API_KEY = "sekret6"\nx = 1\n{key}y = 2\n')
    state = look(repo)
    assert state.facts["remote"] == "https://x:***@github.com/o/r"
    assert b"sekret" not in state.diff
    assert b"+x = 1" in state.diff


def test_without_origin_the_first_remote_is_named(repo: Path) -> None:
    run_git(repo, "remote", "add", "fork", "git@github.com:o/r.git")
    assert look(repo).facts["remote"] == "git@github.com:o/r.git"


def test_nothing_that_a_repository_configures_is_executed(repo: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/executed\ncat\n")
    trap.chmod(0o755)
    (repo / ".gitattributes").write_text("*.py filter=trap diff=trap\n")
    run_git(repo, "add", ".")
    run_git(repo, "commit", "-qm", "attributes")
    for key in ("filter.trap.clean", "filter.trap.process", "diff.trap.command", "diff.trap.textconv", "diff.external"):
        run_git(repo, "config", key, str(trap))
    run_git(repo, "config", "filter.trap.required", "true")
    run_git(repo, "config", "core.fsmonitor", str(trap))
    run_git(repo, "config", "core.pager", str(trap))
    (repo / "train.py").write_text("a = 7\n")
    state = look(repo)
    assert b"+a = 7" in state.diff
    assert not (tmp_path / "executed").exists()


def test_git_variables_of_the_program_do_not_lead_elsewhere(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "/nowhere")
    (repo / "train.py").write_text("a = 8\n")
    assert b"+a = 8" in look(repo).diff


# A git that hangs.


def slow_git(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    folder.mkdir()
    (folder / "git").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def is_there(pid_file: Path) -> bool:
    try:
        os.kill(int(pid_file.read_text()), 0)
        return "State:\tZ" not in Path(f"/proc/{pid_file.read_text().strip()}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_git_that_hangs_is_killed_with_its_children_and_the_commit_known(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_git(tmp_path / "bin", monkeypatch, f"sleep 60 & echo $! > {tmp_path}/child; wait")
    monkeypatch.setattr(git, "_ASK_LIMIT", 0.5)
    answer = git.ask(str(tmp_path / "bin" / "git"), str(repo), ("rev-parse",), NEVER, limit=0.5)
    assert answer.stopped == "time"
    until(lambda: not is_there(tmp_path / "child"))


def test_the_end_of_the_run_ends_git_at_once(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_git(tmp_path / "bin", monkeypatch, f"echo $$ > {tmp_path}/self; exec sleep 60")
    stop = threading.Event()
    started = tmp_path / "self"
    threading.Thread(target=lambda: (until(lambda: started.exists() and started.read_text() != ""), stop.set())).start()
    began = time.monotonic()
    state = git.look(str(repo), stop)
    assert time.monotonic() - began < 50, "git sleeps for 60 s"
    assert state is not None
    assert (len(state.facts["commit"]), state.facts["problem"]) == (40, "the run ended first")
    assert not is_there(tmp_path / "self")


def test_a_setpriv_that_cannot_tie_processes_is_done_without(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "setpriv").write_text("#!/bin/sh\necho 'setpriv: unrecognized option: pdeathsig' >&2; exit 1\n")
    (tools / "setpriv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    (repo / "train.py").write_text("a = 9\n")
    assert b"+a = 9" in look(repo).diff


def test_git_goes_when_the_training_is_killed(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_git(tmp_path / "bin", monkeypatch, f"echo $$ > {tmp_path}/self; exec sleep 60")
    code = (
        "import sys, threading; from fsrun.run import git\n"
        "t = threading.Thread(target=git.look, args=(sys.argv[1], threading.Event()), daemon=True); t.start()\n"
        "print('ready', flush=True); t.join()"
    )
    with program(code, tmp_path, str(repo), PATH=os.environ["PATH"]) as process:
        ready(process)
        until(lambda: (tmp_path / "self").exists() and (tmp_path / "self").read_text().strip() != "")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        until(lambda: not is_there(tmp_path / "self"))


def test_a_head_that_names_no_file_has_no_commit(tmp_path: Path) -> None:
    (tmp_path / "HEAD").write_bytes(b"ref: refs/heads/a\0b\n")
    assert git.read_head(str(tmp_path))["commit"] is None
