"""Where everything stands (protocol.md 2): builds and parses every path below a run folder.

The only home of file-name literals. Paths are relative, with ``/``; what is in the files is decided in ``records``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from fsrun.core.ids import is_entry, is_id, is_job, is_token, parse_number

RUN_VIEW = "run.json"
JOBS = "jobs"
SCALARS = "scalars"
SYSTEM = "system"
FILES = "files"
MEDIA = "media"
TABLES = "tables"
ARTIFACTS = "artifacts"
MANIFEST = "manifest.json"
SUMS = "SHA256SUMS"
KEPT = "files"
"""In the folder of an artifact's version: what it holds, the digests of that, and the files themselves."""
EVALS = "evals"
BEST_RULE = "best.json"
DATA = "data.parquet"

QUEUE = "queue"
FINISHED = "FINISHED"
META = "meta"
CLAIMED = "claimed"
RETRY = "retry"
BEST = "best"
FAILED = "failed"
TRASH = "trash"
UNIT = "unit.json"

LIVE = ".live"
"""Folder of the root that holds a marker for each live run: a hint, never a statement."""

RUN_FOLDERS = (JOBS, SCALARS, EVALS, FILES)
"""Made when main is opened for the first time; the other folders of the run are made when something enters them."""
UNIT_FOLDERS = (QUEUE, META, CLAIMED, RETRY, BEST, FAILED, TRASH)
"""The hand-over unit: in the run folder, or together elsewhere."""

TEMP = ".tmp-"
_MAX_MARKER = 200
JobFileKind = Literal["view", "lock", "beat", "taken", "end"]


@dataclass(frozen=True, slots=True)
class JobFile:
    """A parsed name of ``jobs/``. ``token`` and ``count`` are set for beat and taken names alone."""

    kind: JobFileKind
    job: str
    session: int = 0
    token: str = ""
    count: int = 0


def job_view(job: str) -> str:
    """Path of the view of a job: ``run.json`` for main, ``jobs/<job>.json`` for the rest."""
    return RUN_VIEW if job == "main" else f"{JOBS}/{job}.json"


def lock_name(job: str, session: int) -> str:
    """Name in ``jobs/`` of the record that opened a session."""
    return f"{job}.{session}.lock"


def session_key(job: str, session: int) -> str:
    """How a record names a session of a run."""
    return f"{job}.{session}"


def end_name(job: str, session: int) -> str:
    """Name in ``jobs/`` of the record that closed a session."""
    return f"{job}.{session}.end"


def beat_name(job: str, session: int, token: str, count: int) -> str:
    """Name in ``jobs/`` of heartbeat ``count``; its owner renames it to ``count + 1``."""
    return f"{job}.{session}.{token}.beat.{count}"


def taken_name(job: str, session: int, token: str, count: int) -> str:
    """Name in ``jobs/`` of a beat that somebody took away to close the session."""
    return f"{job}.{session}.{token}.taken.{count}"


@lru_cache(maxsize=4096)
def parse_job_file(name: str) -> JobFile | None:
    """Read a name of ``jobs/``; None for everything that the protocol does not know (kept and ignored)."""
    parts = name.split(".")
    if not is_job(parts[0]):
        return None
    if len(parts) == 2 and parts[1] == "json":
        return JobFile("view", parts[0])
    session = parse_number(parts[1]) if len(parts) in (3, 5) else None
    if not session:
        return None
    if len(parts) == 3:
        if parts[2] == "lock":
            return JobFile("lock", parts[0], session)
        return JobFile("end", parts[0], session) if parts[2] == "end" else None
    count = parse_number(parts[4])
    if count is None or not is_token(parts[2]):
        return None
    if parts[3] == "beat":
        return JobFile("beat", parts[0], session, parts[2], count)
    return JobFile("taken", parts[0], session, parts[2], count) if parts[3] == "taken" else None


def looks_like_job_file(name: str) -> bool:
    """Whether a name of ``jobs/`` was meant as one of the protocol's, valid or not."""
    return not name.startswith(".") and (name.endswith((".lock", ".end")) or ".beat." in name or ".taken." in name)


def scalars_name(job: str, session: int) -> str:
    """Name in ``scalars/`` (and of the index files of media, tables and artifacts) of a session's log."""
    return f"{job}.{session}.jsonl"


def spill_name(job: str, session: int, piece: int) -> str:
    """Name in ``scalars/`` of an imported piece of a spill: read after the session's log, outside its fence."""
    return f"{job}.{session}.s{piece}.jsonl"


def parse_log_name(name: str) -> tuple[str, int, int | None] | None:
    """Read a log name as (job, session, spill piece or None)."""
    parts = name.split(".")
    if len(parts) not in (3, 4) or parts[-1] != "jsonl" or not is_job(parts[0]):
        return None
    session = parse_number(parts[1])
    if not session:
        return None
    if len(parts) == 3:
        return parts[0], session, None
    piece = parse_number(parts[2][1:]) if parts[2].startswith("s") else None
    return None if piece is None else (parts[0], session, piece)


def system_name(session: int) -> str:
    """Name in ``system/<job>/`` of a session's log of samples."""
    return f"{session}.jsonl"


INDEXES = (MEDIA, TABLES, ARTIFACTS)
"""Folders with payload files and an index of each session."""


def payload_name(step: int, job: str, session: int, number: int, suffix: str) -> str:
    """Name, in the folder of its tag or table, of file ``number`` that a session recorded."""
    return f"{step}.{job}.{session}.{number}{suffix}"


def version_path(folder: str, version: int) -> str:
    """Path in the run folder of a version of the artifact that is kept in ``folder``."""
    return f"{ARTIFACTS}/{folder}/v{version}"


def parse_version(name: str) -> int | None:
    """Read a name in an artifact's folder as the number of a version."""
    return parse_number(name[1:]) if name.startswith("v") else None


def is_inside(path: str) -> bool:
    """Whether a path that an index names stays in the run folder: relative, without ``.``, ``..`` and empty parts."""
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


def session_logs(job: str, session: int) -> list[tuple[str, str]]:
    """All logs of a session that a fence speaks of, as (folder in the run folder, name in it)."""
    name = scalars_name(job, session)
    return [(SCALARS, name), (f"{SYSTEM}/{job}", system_name(session))] + [(f, name) for f in INDEXES]


def spill_folder(user: str) -> str:
    """Name of the local folder (below the one for temporary files) that holds a user's spills."""
    return f"fsrun-spill-{user}"


def spill_file(run: str, job: str, session: int, token: str, piece: int) -> str:
    """Name in the spill folder of what a session of the run folder named ``run`` could not write."""
    return f"{run}.{job}.{session}.{token}.s{piece}.jsonl"


def spill_note(spill: str) -> str:
    """Name of the record beside a spill file that says where it belongs."""
    return spill[: -len(".jsonl")] + ".json"


def parse_spill_file(name: str) -> tuple[str, str, int, str, int] | None:
    """Read a name of the spill folder, from the right, as (run folder, job, session, token, piece)."""
    parts = name.rsplit(".", 5)
    if len(parts) != 6 or parts[5] != "jsonl" or not is_job(parts[1]) or not is_token(parts[3]):
        return None
    session = parse_number(parts[2])
    piece = parse_number(parts[4][1:]) if parts[4].startswith("s") else None
    return (parts[0], parts[1], session, parts[3], piece) if session and piece is not None else None


def console_name(job: str, session: int | None = None) -> str:
    """Name in ``files/`` of a session's console, or of the link to the newest one."""
    return f"output.{job}.log" if session is None else f"output.{job}.{session}.log"


def parse_console_name(name: str, job: str) -> int | None:
    """Read a name of ``files/`` as the console of a session of ``job``: its number, or None."""
    prefix, suffix = f"output.{job}.", ".log"
    return parse_number(name[len(prefix) : -len(suffix)]) if name.startswith(prefix) and name.endswith(suffix) else None


def environment_name(job: str, session: int) -> str:
    """Name in ``files/`` of the record of code, packages and host that a session began with."""
    return f"{job}.{session}.environment.json"


def diff_name(job: str, session: int) -> str:
    """Name in ``files/`` of the changes to the code that were not committed when a session began."""
    return f"{job}.{session}.diff.patch"


def packages_name(job: str, session: int) -> str:
    """Name in ``files/`` of the list of installed packages."""
    return f"{job}.{session}.packages.txt"


def parse_environment_name(name: str) -> tuple[str, int] | None:
    """Read a name of ``files/`` as the environment of (job, session)."""
    owner = name.removesuffix(".environment.json")
    return parse_claim_folder(owner) if owner != name else None


def outcome_name(entry: str, attempt: int) -> str:
    """Name in ``evals/`` of the outcome of one attempt."""
    return f"{entry}.{attempt}.json"


def parse_outcome_name(name: str) -> tuple[str, int] | None:
    """Read an outcome name as (entry, attempt), from the right."""
    if not name.endswith(".json"):
        return None
    entry, dot, number = name[: -len(".json")].rpartition(".")
    attempt = parse_number(number)
    return (entry, attempt) if dot and attempt and is_entry(entry) else None


_SAMPLES = ".samples.parquet"


def samples_name(entry: str, attempt: int) -> str:
    """Name in ``evals/`` of the samples of one attempt; they count only where its outcome names them."""
    return f"{entry}.{attempt}{_SAMPLES}"


def parse_samples_name(name: str) -> tuple[str, int] | None:
    """Read the name of samples as (entry, attempt), from the right."""
    key = name.removesuffix(_SAMPLES)
    return parse_outcome_key(key) if key != name else None


def outcome_key(entry: str, attempt: int) -> str:
    """The value of the reserved key ``entry`` in a scalar line."""
    return f"{entry}.{attempt}"


def parse_outcome_key(key: str) -> tuple[str, int] | None:
    """Read the reserved key ``entry`` of a scalar line as (entry, attempt)."""
    return parse_outcome_name(key + ".json")


def meta_name(entry: str) -> str:
    """Name in ``meta/`` of the record that reserves an entry name."""
    return f"{entry}.json"


def parse_meta_name(name: str) -> str | None:
    """Read a name of ``meta/`` as the entry it reserves."""
    entry = name[: -len(".json")] if name.endswith(".json") else ""
    return entry if is_entry(entry) else None


def claim_folder(job: str, session: int) -> str:
    """Name in ``claimed/`` of what one session has taken."""
    return f"{job}.{session}"


def parse_claim_folder(name: str) -> tuple[str, int] | None:
    """Read a name of ``claimed/`` as (job, session)."""
    job, _, number = name.rpartition(".")
    session = parse_number(number)
    return (job, session) if session and is_job(job) else None


def claim_path(job: str, session: int, attempt: int, entry: str) -> str:
    """Path in the unit of a claimed entry."""
    return f"{CLAIMED}/{claim_folder(job, session)}/{attempt}/{entry}"


def waiting_path(attempt: int, entry: str) -> str:
    """Path in the unit of an entry that waits for ``attempt``."""
    return f"{QUEUE}/{entry}" if attempt == 1 else f"{RETRY}/{attempt}/{entry}"


def temp_name(job: str, session: int, random: str) -> str:
    """Hidden name for something that is being published; it carries who made it."""
    return f"{TEMP}{job}.{session}-{random}"


def is_temp(name: str) -> bool:
    """Whether a name is a temporary of fsrun."""
    return name.startswith(TEMP)


def parse_temp_name(name: str) -> tuple[str, int] | None:
    """Read a temporary's name as the (job, session) that made it."""
    if not is_temp(name):
        return None
    owner, dash, _ = name[len(TEMP) :].rpartition("-")
    return parse_claim_folder(owner) if dash else None


def marker_name(project: str, run: str) -> str | None:
    """Name in ``.live/`` of the marker of a run, by its folders; None where it would be too long: it has none then."""
    name = f"{project}@{run}"
    return name if len(name) <= _MAX_MARKER else None


def parse_marker_name(name: str) -> tuple[str, str] | None:
    """Read a marker's name as the folders (project, run)."""
    project, at, run = name.partition("@")
    return (project, run) if at and is_id(project) and is_id(run) else None


def join(*parts: str) -> str:
    """Join path pieces with ``/``."""
    return "/".join(parts)
