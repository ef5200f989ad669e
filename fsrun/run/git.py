"""The state of the code a job runs: commit, branch, remote and uncommitted changes of its git repository.

Does: asks git where there is one, within a time and a size, and reads the commit from the repository's own files where
there is none, or git refuses. Neither repository nor index is touched, nothing of the repository's configuration is
executed (filters, text conversion, hooks, monitors), nothing is fetched. Leaves to others: where the answer goes
(``environment``).

Limits: files that are not tracked are not looked at; files over 1 MiB and binary ones are named in the diff, but not
compared; changes inside submodules are not shown.
"""

from __future__ import annotations

import os
import re
import selectors
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fsrun.core.redaction import redact_text

MAX_DIFF = 1 << 20
"""Bytes of a diff that are kept."""
_MAX_ANSWER = 64 << 10
_ASK_LIMIT, _DIFF_LIMIT = 5.0, 15.0
"""Seconds that a question, and the diff, may take."""
_CHUNK = 1 << 16
_MAX_LINE = 1 << 16
"""Characters of a line of the diff above which it is data, and only said to be there."""
_PIECE = 1 << 14
_POLL = 0.05

SECRET_FILES = (
    *(".env", ".env.*", "*.env", ".envrc", ".netrc", ".npmrc", ".pypirc", ".pgpass", ".git-credentials", ".htpasswd"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "kubeconfig"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "credentials*", "secrets.*", "secret.*"),
)
"""Names of files whose changes are left out of the diff."""

_CONFIG = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.bigFileThreshold": "1m",
    "core.quotePath": "false",
    "core.pager": "cat",
    # Else git would write the index after it had looked at it.
    "diff.autoRefreshIndex": "false",
    "diff.renames": "false",
    "diff.noprefix": "false",
    "diff.mnemonicPrefix": "false",
}
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty", "HEAD", "--", ":(top)")
_KEPT = ("PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR", "GIT_CEILING_DIRECTORIES", "LD_LIBRARY_PATH")
_VARIABLES = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ASKPASS": "true",
}


@dataclass(slots=True)
class Answer:
    """What a git that was run said."""

    code: int
    out: bytes
    error: str
    stopped: str = ""
    """Why it was killed before it had ended: ``time``, ``size`` or ``end``."""


@dataclass(slots=True)
class GitState:
    """The state of a repository; ``facts`` stands in the environment's record as it is."""

    facts: dict[str, Any]
    diff: bytes = field(default=b"")


def look(folder: str, stop: threading.Event) -> GitState | None:
    """The state of the repository around ``folder``, None where there is none; ends soon after ``stop`` is set."""
    git_dir = find_git_dir(folder)
    if git_dir is None:
        return None
    state = GitState({**dict.fromkeys(("commit", "branch", "remote", "dirty", "cut", "problem")), "cut": False})
    facts = state.facts
    facts.update(read_head(git_dir))
    git = shutil.which("git")
    if git is None:
        facts["problem"] = "there is no git on this machine: remote and changes are not known"
        return state
    asked = ask(git, folder, ("rev-parse", "--is-bare-repository", "--absolute-git-dir"), stop)
    if asked.code != 0:
        facts["problem"] = _why(asked)
        return state
    if facts["commit"] is None:  # or its files are of a kind that is not known here
        facts.update(_ask_head(git, folder, stop))
    settings = _settings(git, folder, stop)
    facts["remote"] = _remote(settings)
    if asked.out.startswith(b"true"):
        facts["problem"] = "a bare repository has no changes"
    elif facts["commit"] is None:
        facts["problem"] = "there is no commit yet"
    else:
        _diff(git, folder, stop, state, settings)
    return state


def _ask_head(git: str, folder: str, stop: threading.Event) -> dict[str, str | None]:
    commit = ask(git, folder, ("rev-parse", "--verify", "--quiet", "HEAD"), stop).out.decode("ascii", "replace").strip()
    branch = ask(git, folder, ("symbolic-ref", "--quiet", "--short", "HEAD"), stop).out.decode("utf-8", "replace")
    return {"commit": _commit(commit), "branch": branch.strip() or None}


def _settings(git: str, folder: str, stop: threading.Event) -> dict[str, str]:
    """URLs of remotes, and the filters that git would run over files to compare them."""
    asked = ask(git, folder, ("config", "--null", "--get-regexp", r"^(remote\..*\.url|filter\..*)$"), stop)
    pairs = (entry.partition("\n") for entry in asked.out.decode("utf-8", "replace").split("\0"))
    settings: dict[str, str] = {}
    for key, _, value in pairs:
        settings.setdefault(key, value)
    return settings


def _diff(git: str, folder: str, stop: threading.Event, state: GitState, settings: dict[str, str]) -> None:
    # Without its program a filter does nothing, unless it is required.
    filters = {key: "false" if key.endswith("required") else "" for key in settings if key.startswith("filter.")}
    left_out = [f":(top,exclude,icase,glob)**/{name}" for name in SECRET_FILES]
    answer = ask(git, folder, (*_DIFF, *left_out), stop, most=MAX_DIFF, limit=_DIFF_LIMIT, settings=filters)
    facts = state.facts
    if answer.code != 0 and not answer.stopped:
        facts["problem"] = _why(answer)
        return
    data = answer.out[: answer.out.rfind(b"\n") + 1] if answer.stopped else answer.out
    # Where it was stopped before the first line nobody knows whether there are changes.
    facts["dirty"] = True if data else (None if answer.stopped else False)
    if answer.stopped:
        facts["problem"] = _why(answer)
    state.diff, shortened = clean(data, stop)
    facts["cut"] = bool(answer.stopped) or shortened
    if answer.stopped and data:
        state.diff += f"[cut here by fsrun: {facts['problem']}]\n".encode()


def _remote(settings: dict[str, str]) -> str | None:
    """The URL of origin, else of the first remote, without user names that are tokens, and passwords."""
    urls = [url for key, url in settings.items() if key.startswith("remote.")]
    url = settings.get("remote.origin.url") or (urls[0] if urls else None)
    return None if url is None else redact_text(url)[:500]


def _why(answer: Answer) -> str:
    if answer.stopped:
        reasons = {
            "time": "git took too long",
            "size": f"the changes are larger than {MAX_DIFF >> 20} MiB",
            "end": "the run ended first",
        }
        return reasons[answer.stopped]
    lines = [line for line in answer.error.splitlines() if line.strip()]
    return redact_text(lines[0])[:300] if lines else f"git ended with {answer.code}"


def clean(diff: bytes, stop: threading.Event) -> tuple[bytes, bool]:
    """A diff without the secrets in it, and whether lines that are too long for one were cut.

    Done piece by piece, so that the training's own thread is let in between.
    """
    text = diff.decode("utf-8", "backslashreplace")
    if "PRIVATE KEY-----" in text:  # spans lines, so it must not be cut in two
        return redact_text(text).encode("utf-8", "backslashreplace"), False
    parts: list[str] = []
    waiting: list[str] = []
    size, cut = 0, False
    for line in re.findall(r"[^\n]*\n|[^\n]+\Z", text):
        if len(line) > _MAX_LINE:
            line, cut = f"{line[0]}[cut by fsrun: a line of {len(line)} characters]\n", True
        waiting.append(line)
        size += len(line)
        if size > _PIECE:
            parts.append(redact_text("".join(waiting)))
            waiting, size = [], 0
            if not stop.is_set():
                time.sleep(0)
    parts.append(redact_text("".join(waiting)))
    return "".join(parts).encode("utf-8", "backslashreplace"), cut


# Running git.


def ask(
    git: str,
    folder: str,
    arguments: tuple[str, ...],
    stop: threading.Event,
    *,
    most: int = _MAX_ANSWER,
    limit: float = _ASK_LIMIT,
    settings: dict[str, str] | None = None,
) -> Answer:
    """Run git and read what it says: ``most`` bytes, for ``limit`` seconds, or until ``stop``; then it is killed."""
    pairs = {**_CONFIG, **(settings or {})}
    options = [part for name, value in pairs.items() if "=" not in name for part in ("-c", f"{name}={value}")]
    command = [git, "--no-pager", *options, *arguments]
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ} | _VARIABLES
    # The kernel is to kill git when this process is killed; not every setpriv can have that done.
    tie = shutil.which("setpriv")
    if tie is not None:
        answer = _run([tie, "--pdeathsig", "KILL", *command], folder, environment, stop, most, limit)
        if answer.code == 0 or answer.stopped or "setpriv" not in answer.error:
            return answer
    return _run(command, folder, environment, stop, most, limit)


def _run(
    command: list[str], folder: str, environment: dict[str, str], stop: threading.Event, most: int, limit: float
) -> Answer:
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return Answer(-1, b"", f"{command[0]}: {error.strerror or error}")
    stopped = "end"
    try:
        out, said, stopped = _read(process, stop, most, time.monotonic() + limit)
    finally:
        code = _end(process, bool(stopped))
    return Answer(code, out, said.decode("utf-8", "replace"), stopped)


def _read(
    process: subprocess.Popen[bytes], stop: threading.Event, most: int, deadline: float
) -> tuple[bytes, bytes, str]:
    assert process.stdout is not None
    assert process.stderr is not None
    texts = {process.stdout: bytearray(), process.stderr: bytearray()}
    stopped = ""
    with selectors.DefaultSelector() as waiting:
        for pipe in texts:
            waiting.register(pipe, selectors.EVENT_READ)
        while waiting.get_map() and not stopped:
            for key, _ in waiting.select(_POLL):
                text = texts[key.fileobj]  # type: ignore[index]
                data = os.read(key.fd, _CHUNK)
                if not data:
                    waiting.unregister(key.fileobj)
                text += data[: max(0, most - len(text))] if key.fileobj is process.stdout else data[:1000]
                if key.fileobj is process.stdout and len(text) >= most:
                    stopped = "size"
            if stop.is_set():
                stopped = stopped or "end"
            elif time.monotonic() > deadline:
                stopped = stopped or "time"
    return bytes(texts[process.stdout]), bytes(texts[process.stderr][:4000]), stopped


def _end(process: subprocess.Popen[bytes], stopped: bool) -> int:
    """Have git and its children gone; returns its exit code."""
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    for patience in (0.0 if stopped else 1.0, 1.0):
        try:
            return process.wait(patience)
        except subprocess.TimeoutExpired:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
    return -signal.SIGKILL  # it hangs in the kernel, with a file system, and goes when that answers


# Reading a repository without git.


def find_git_dir(folder: str) -> str | None:
    """The repository's own folder for what lies in ``folder``: ``.git``, where a file ``.git`` leads, or a bare one."""
    at = os.path.abspath(folder)
    while True:
        dot = f"{at.rstrip('/')}/.git"
        if os.path.isdir(dot):
            return dot
        text = _first_line(dot)
        if text.startswith("gitdir:"):
            return os.path.normpath(os.path.join(at, text.removeprefix("gitdir:").strip()))
        if all(os.path.exists(f"{at}/{name}") for name in ("HEAD", "objects", "refs")):
            return at
        above = os.path.dirname(at)
        if above == at:
            return None
        at = above


def read_head(git_dir: str) -> dict[str, str | None]:
    """Commit and branch; the branch is that which is being rebased where HEAD is detached for that."""
    head = _first_line(f"{git_dir}/HEAD")
    if not head.startswith("ref:"):
        branch = None
        for place in ("rebase-merge", "rebase-apply"):
            branch = branch or _first_line(f"{git_dir}/{place}/head-name").removeprefix("refs/heads/") or None
        return {"commit": _commit(head), "branch": branch}
    name = head.removeprefix("ref:").strip()
    return {"commit": _resolve(git_dir, name), "branch": name.removeprefix("refs/heads/")}


def _resolve(git_dir: str, name: str) -> str | None:
    common = _first_line(f"{git_dir}/commondir")
    shared = os.path.normpath(os.path.join(git_dir, common)) if common else git_dir
    for place in (git_dir, shared):
        found = _commit(_first_line(f"{place}/{name}"))
        if found:
            return found
    with suppress(OSError), open(f"{shared}/packed-refs", encoding="utf-8", errors="replace") as file:
        for line in file:
            commit, _, ref = line.rstrip("\n").partition(" ")
            if ref == name:
                return _commit(commit)
    return None


def _commit(text: str) -> str | None:
    return text if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) else None


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline(4096).strip()
    except (OSError, ValueError):  # a NUL in what a file of the repository names
        return ""
