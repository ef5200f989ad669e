"""Runs and the state of their jobs as plain JSON values: what ``ls`` prints (protocol.md 4.8, 6.7).

Status comes from the chain of sessions; a view lends heartbeat and step for display, never a verdict. A run that is
damaged is described as far as it can be read, with a ``problem``. Reads only, and imports little, since ``ls`` over ten
thousand runs has half a second. Queue, evaluations and the best entry are left to ``inspect``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, TypeVar

import orjson

from fsrun.core import codec, layout
from fsrun.core.errors import InvalidError, NotFoundError
from fsrun.core.ids import MAIN
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import read_record
from fsrun.run.roots import FIRST_LOCK, list_jobs
from fsrun.run.spread import spread

Told = TypeVar("Told")

_MISSING = (FileNotFoundError, NotADirectoryError)
_TAIL = 1 << 16
_STATUSES = frozenset({"finished", "failed", "crashed"})

Chains = dict[str, tuple[int, bool]]
"""Job -> (highest session with a lock, whether that one is closed)."""


def read_chains(names: list[str]) -> Chains:
    """Read a listing of ``jobs/``: the highest session of each job, and whether it is closed.

    ``core.sessions.look_all`` says all that a listing tells; this is the part that a list of ten thousand runs needs.
    """
    highest: dict[str, int] = {}
    ends: set[tuple[str, int]] = set()
    for name in names:
        found = layout.parse_job_file(name)
        if found is None:
            continue
        if found.kind == "lock":
            if found.session > highest.get(found.job, 0):
                highest[found.job] = found.session
        elif found.kind == "end":
            ends.add((found.job, found.session))
    return {job: (session, (job, session) in ends) for job, session in highest.items()}


def list_runs(fs: FileSystem, root: str, tell: Callable[[str, Chains], Told], most: int = 1) -> list[Told]:
    """``tell(path, chains)`` of every run below ``root``, by path: a root, the folder of one project, or a run itself.

    ``most``: so many processes may share the work (``run.spread``); results must be ones that pickle takes. Raises
    ``NotFoundError`` where ``root`` is no folder. What is no run, or cannot be listed, is passed over.
    """
    try:
        names = fs.names(root)
    except _MISSING:
        raise NotFoundError(f"{root}: no such folder; give the root of the runs, or set $FSRUN_ROOT") from None
    if (chains := _chains_of(fs, root, names)) is not None:
        return [tell(root, chains)]

    def look(path: str) -> tuple[Told | None, list[str]]:
        names = names_in(fs, path)
        if (chains := _chains_of(fs, path, names)) is not None:
            return tell(path, chains), []
        return None, _below(path, names)

    tops = spread(look, _below(root, names), most=most)
    inside = iter(spread(lambda path: look(path)[0], [path for _, paths in tops for path in paths], most=most))
    found = [told for run, paths in tops for told in (run, *islice(inside, len(paths)))]
    return [told for told in found if told is not None]


def _below(path: str, names: list[str]) -> list[str]:
    """Where runs may stand in a folder with these names."""
    return [f"{path}/{name}" for name in sorted(names) if not name.startswith(".")]


def names_in(fs: FileSystem, folder: str) -> list[str]:
    """Names in a folder; none where it is absent or cannot be listed."""
    try:
        return fs.names(folder)
    except OSError:
        return []


def _chains_of(fs: FileSystem, path: str, names: list[str]) -> Chains | None:
    """Chains of a run folder with these names, or None where it is no run. ``jobs/`` is not looked up unseen."""
    try:
        listing = list_jobs(fs, path, names)
    except OSError:
        return None
    return None if listing is None else read_chains(listing)


def record_at(fs: FileSystem, path: str) -> dict[str, Any]:
    """A record as it stands; empty where it is absent, torn or no JSON."""
    try:
        return read_record(fs, path) or {}
    except OSError:
        return {}


def as_text(value: object) -> str | None:
    """A value that must be text, or None: records are somebody else's."""
    return value if isinstance(value, str) else None


def as_int(value: object) -> int | None:
    """A value that must be an integer, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_map(value: object) -> dict[str, Any]:
    """A value that must be an object; empty where it is none."""
    return value if isinstance(value, dict) else {}


def error_line(error: object) -> str | None:
    """The last line of a kept traceback, else its type and message; None where no error was kept."""
    if not isinstance(error, dict):
        return None
    lines = [line for line in str(error.get("traceback") or "").splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"{error.get('type', 'error')}: {error.get('message', '')}"


def read_end(fs: FileSystem, path: str, job: str, session: int) -> tuple[dict[str, Any], str | None]:
    """Read the end of a closed session: (record, problem). ``status`` is ``crashed`` where it says none of the four."""
    end = record_at(fs, f"{path}/{layout.JOBS}/{layout.end_name(job, session)}")
    if end.get("status") in _STATUSES:
        return end, None
    return end | {"status": "crashed"}, f"{layout.JOBS}/{layout.end_name(job, session)} cannot be read"


def last_logged_step(fs: FileSystem, path: str, job: str, session: int) -> int | None:
    """Step of the last complete line of a session's log, or None."""
    log = f"{path}/{layout.SCALARS}/{layout.scalars_name(job, session)}"
    try:
        # A listing first: the name of a log that does not exist yet must not be looked up (protocol.md 8.1).
        if layout.scalars_name(job, session) not in fs.names(f"{path}/{layout.SCALARS}"):
            return None
        data = fs.read(log, max(0, fs.stat(log).size - _TAIL))
    except OSError:
        return None
    from fsrun.core.scalars import as_step

    complete = data.partition(b"\0")[0]
    for line in reversed(complete[: complete.rfind(b"\n") + 1].split(b"\n")):
        try:
            value = codec.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(value, dict) and (step := as_step(value.get("step"))) is not None:
            return step
    return None


def started(fs: FileSystem, path: str) -> str | None:
    """When the first session of main was opened, as its lock says (RFC 3339), or None."""
    return as_text(record_at(fs, f"{path}/{layout.JOBS}/{layout.lock_name(MAIN, 1)}").get("opened"))


def silence(view: Mapping[str, Any], opened: str | None, now_ns: int) -> float | None:
    """Seconds since the view's heartbeat by this host's wall clock: for display, never for a verdict."""
    from fsrun.core.records import parse_rfc3339

    at = parse_rfc3339(as_text(view.get("heartbeat")) or opened or "")
    return None if at is None else max(0.0, now_ns / 1e9 - at)


def _alive(lock: Mapping[str, Any]) -> str:
    from fsrun.core.records import Holder
    from fsrun.disk import identity

    try:
        proof = identity.is_alive(Holder.from_json(as_map(lock.get("holder"))))
    except InvalidError:
        proof = None
    return "unknown" if proof is None else "yes" if proof else "no"


def read_job(fs: FileSystem, path: str, job: str, session: int, *, closed: bool, now_ns: int) -> dict[str, Any]:
    """Describe the newest session of a job.

    ``status`` is running, finished, failed or crashed, with a ``problem`` where the end cannot be read. An open session
    whose process is proved dead is crashed already, with ``closed`` false: no end was written, and it was found dead.
    """
    lock = record_at(fs, f"{path}/{layout.JOBS}/{layout.lock_name(job, session)}")
    view = {} if closed else _view(fs, path, job, session)
    holder = as_map(lock.get("holder"))
    problem = None if lock else f"{layout.JOBS}/{layout.lock_name(job, session)} cannot be read"
    opened = as_text(lock.get("opened"))
    timeout = lock.get("timeout")
    facts: dict[str, Any] = {
        "job": job,
        "session": session,
        "status": "running",
        "reason": None,
        "alive": "no",
        "host": as_text(holder.get("host")),
        "pid": as_int(holder.get("pid")),
        "user": as_text(holder.get("user")),
        "step": as_int(view.get("step")),
        "opened": opened,
        "heartbeat": as_text(view.get("heartbeat")),
        "ended": None,
        "closed": closed,
        "silent_s": None,
        "timeout": timeout if isinstance(timeout, int | float) else None,
        "config": as_map(lock.get("config")),
        "summary": as_map(view.get("summary")),
        "error": None,
        "exit_code": None,
        "found_by": None,
        "hands_over": lock.get("hands_over") is True,
        "problem": problem,
    }
    if job == MAIN:
        facts |= {
            "id": as_text(lock.get("run")),
            "project": as_text(lock.get("project")),
            "name": as_text(lock.get("name")),
        }
        facts["unit"] = lock.get("unit")
    if closed:
        end, unread = read_end(fs, path, job, session)
        facts |= {"status": end["status"], "reason": as_text(end.get("reason")), "ended": as_text(end.get("ended"))}
        facts |= {"error": end.get("error"), "exit_code": as_int(end.get("exit_code")), "found_by": end.get("found_by")}
        facts |= {"summary": as_map(end.get("summary")), "problem": problem or unread, "step": as_int(end.get("step"))}
    else:
        facts["alive"] = _alive(lock)
        facts["silent_s"] = silence(view, opened, now_ns)
        if facts["alive"] == "no":
            facts |= {"status": "crashed", "reason": "proved dead"}
    if not closed or facts["step"] is None:
        logged = last_logged_step(fs, path, job, session)
        facts["step"] = logged if logged is not None else facts["step"]
    return facts


def _view(fs: FileSystem, path: str, job: str, session: int) -> dict[str, Any]:
    """The view of a job if it speaks of this session."""
    view = record_at(fs, f"{path}/{layout.job_view(job)}")
    return view if view.get("session") == session else {}


def read_run(fs: FileSystem, path: str, chains: Chains | None = None, *, now_ns: int) -> dict[str, Any]:
    """Describe a run: the facts of its main job, and all jobs under ``jobs``, main first.

    Raises ``NotFoundError`` where ``path`` is no run.
    """
    if chains is None:
        chains = _chains_of(fs, path, names_in(fs, path))
    if chains is None:
        raise NotFoundError(f"{path}: no run stands here ({layout.JOBS}/{FIRST_LOCK} is missing)")
    order = sorted(chains, key=lambda job: (job != MAIN, job))
    jobs = [read_job(fs, path, job, chains[job][0], closed=chains[job][1], now_ns=now_ns) for job in order]
    main = jobs[0]
    named = {key: main.pop(key) for key in ("id", "project", "name", "unit")}
    folder, project = os.path.basename(path), os.path.basename(os.path.dirname(path))
    run = {"id": named["id"] or folder, "project": named["project"] or project, "name": named["name"], "path": path}
    run |= {"unit": named["unit"]}
    return run | {key: value for key, value in main.items() if key != "job"} | {"jobs": jobs}


def brief_run(fs: FileSystem, path: str, chains: Chains, *, now_ns: int) -> dict[str, Any]:
    """Describe a run for one line of ``ls``: of a closed job only the end is opened, and main's first lock.

    Keys: id, project, started, and of main as of each of ``jobs``: job, status, reason, step, alive, silent_s, timeout,
    problem.
    """
    head, _, folder = path.rpartition("/")
    run: dict[str, Any] = {"id": folder, "project": head[head.rfind("/") + 1 :], "jobs": []}
    for job, (session, closed) in chains.items():
        if closed:
            end, problem = read_end(fs, path, job, session)
            facts = {"job": job, "status": end["status"], "reason": end.get("reason"), "step": end.get("step")}
            facts |= {"alive": "no", "problem": problem}
            if job == MAIN and facts["step"] is None:
                facts["step"] = last_logged_step(fs, path, job, session)
        else:
            facts = read_job(fs, path, job, session, closed=False, now_ns=now_ns)
        if job == MAIN:
            run = facts | run
        else:
            run["jobs"].append(facts)
    run["started"] = started(fs, path)
    if not is_plain_folder(folder):
        lock = record_at(fs, f"{path}/{layout.JOBS}/{layout.lock_name(MAIN, chains[MAIN][0])}")
        run["id"] = as_text(lock.get("run")) or folder
    return run


def is_plain_folder(folder: str) -> bool:
    """Whether a run's folder is its id; a portable form ends in a digest, and the lock holds the id as given."""
    digest = folder[-12:]
    return folder[-13:-12] != "-" or bool(digest.strip("0123456789abcdef"))
