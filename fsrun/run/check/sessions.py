"""Checks of ``jobs/`` and the views: chains, locks, ends, beats (protocol.md 3, 4, 6.2, 6.3, 6.7)."""

from __future__ import annotations

from fsrun.core import ids, layout
from fsrun.core.errors import InvalidError
from fsrun.core.records import End, Holder, Lock, holder_of
from fsrun.core.sessions import Chain, leftovers
from fsrun.disk.store import read_record
from fsrun.run.check.finding import Fix, Picture, gaps
from fsrun.run.check.repair import close_dead, remove_name, rewrite_view

_SPOILED = "the chain was changed by hand; readers follow the highest lock"


def check_sessions(picture: Picture) -> None:
    """Check every chain, its records and its view."""
    _check_names(picture)
    for job, chain in sorted(picture.chains.items()):
        if not chain.highest and not chain.ends:
            continue
        _check_chain(picture, chain)
        for session in sorted(chain.locks):
            _check_lock(picture, job, session)
        for session in sorted(chain.ends):
            _check_end(picture, job, session)
        _check_tokens(picture, chain)
        _check_beats(picture, chain)
        _check_view(picture, chain)
    _check_id(picture)


def _check_names(picture: Picture) -> None:
    for name in picture.names:
        if layout.looks_like_job_file(name) and layout.parse_job_file(name) is None:
            message = "is no valid name, so that every reader passes it over"
            picture.report("warning", f"{layout.JOBS}/{name}", "3", message, "remove it, if nothing of yours made it")


def _check_chain(picture: Picture, chain: Chain) -> None:
    job = chain.job
    for session in gaps(chain.locks, chain.highest):
        lock = f"{layout.JOBS}/{layout.lock_name(job, session)}"
        picture.report("error", lock, "4", f"is missing, but session {chain.highest} was opened", _SPOILED)
    for session in sorted(chain.locks - chain.ends - {chain.highest}):
        end = f"{layout.JOBS}/{layout.end_name(job, session)}"
        picture.report("error", end, "9", "is missing, but a later session was opened", _SPOILED)
    for session in sorted(chain.ends):
        if session > chain.highest:
            name = f"{layout.JOBS}/{layout.end_name(job, session)}"
            picture.report("error", name, "4", "closes a session that was never opened", _SPOILED)


def _check_lock(picture: Picture, job: str, session: int) -> None:
    file = f"{layout.JOBS}/{layout.lock_name(job, session)}"
    lock = picture.read(file, Lock)
    if lock is None:
        return
    picture.locks[job, session] = lock
    blame = "whoever wrote it does not follow protocol.md 6.2"
    if (lock.job, lock.session) != (job, session):
        picture.report("error", file, "6.2", f"says job {lock.job}, session {lock.session}", blame)
    if not ids.is_token(lock.token):
        picture.report("error", file, "3", f"token {lock.token!r:.40} is not 8 to 32 of [0-9a-z]", blame)
    if not 0 < lock.timeout < float("inf"):
        picture.report("error", file, "6.2", f"timeout {lock.timeout} is no time", blame)
    try:
        Holder.from_json(lock.holder or {"host": ""})
    except InvalidError as error:
        picture.report("error", file, "6.1", str(error), "its process can never be proved dead")
    if lock.unit is not None and not all(isinstance(lock.unit.get(key), str) for key in ("path", "host", "id")):
        picture.report("error", file, "6.2", "its unit lacks path, host or id", blame)
    if session == 1 and lock.continues:
        picture.report("error", file, "4.6", "the first session continues no other", blame)
    if (session == 1) != (lock.fence is None):
        what = "the first session has a fence" if session == 1 else "no fence: all of the session before counts"
        picture.report("error", file, "4.7", what, blame)


def _check_end(picture: Picture, job: str, session: int) -> None:
    file = f"{layout.JOBS}/{layout.end_name(job, session)}"
    end = picture.read(file, End)
    if end is None:
        return
    picture.ends[job, session] = end
    if (end.job, end.session) != (job, session):
        message = f"says job {end.job}, session {end.session}"
        picture.report("error", file, "6.3", message, "whoever wrote it does not follow protocol.md 6.3")
    lock = picture.locks.get((job, session))
    if end.token and lock is not None and end.token != lock.token:
        message = "has another token than the lock of its session"
        picture.report("error", file, "6.3", message, "it is the end of another run's session, mixed up in a copy")


def _check_tokens(picture: Picture, chain: Chain) -> None:
    seen: dict[str, int] = {}
    for session in sorted(chain.locks):
        lock = picture.locks.get((chain.job, session))
        if lock is None:
            continue
        if (first := seen.setdefault(lock.token, session)) != session:
            file = f"{layout.JOBS}/{layout.lock_name(chain.job, session)}"
            picture.report("error", file, "4.1", f"has the token of session {first}", "each session draws a new one")


def _check_beats(picture: Picture, chain: Chain) -> None:
    job, highest = chain.job, chain.highest
    top = picture.locks.get((job, highest))
    for name in leftovers(chain, top.token if top else None):
        file = f"{layout.JOBS}/{name}"
        fix = Fix(3, "remove it", lambda file=file: remove_name(picture, file))  # type: ignore[misc]
        picture.report("warning", file, "4.3", "is left over from a closed session", "fsrun check --fix", fix=fix)
    if top is None or chain.closed:
        return
    own = [*chain.beats_of(highest, top.token), *chain.taken_of(highest, top.token)]
    lock = f"{layout.JOBS}/{layout.lock_name(job, highest)}"
    if len(own) > 1:
        names = ", ".join(f"{beat.kind} {beat.count}" for beat in own)
        picture.report("error", lock, "9", f"its session has more than one beat: {names}", "one process beats, once")
    if picture.proved_dead(job, highest):
        fix = Fix(1, "close it as crashed", lambda: close_dead(picture, job, highest))
        message = f"is open, and {holder_of(top)} is proved dead"
        picture.report("warning", lock, "4.4", message, "start the job again, or fsrun check --fix", fix=fix)
    elif not own:
        message = "is open without a beat: its process died between two steps, or a beat was removed by hand"
        picture.report("warning", lock, "4.4", message, "start the job again; it takes over after the timeout")


def _check_view(picture: Picture, chain: Chain) -> None:
    """A view of a closed session that says something else than its end; an open one is its holder's affair."""
    end = picture.ends.get((chain.job, chain.highest))
    lock = picture.locks.get((chain.job, chain.highest))
    if end is None or lock is None:
        return
    file = layout.job_view(chain.job)
    try:
        view = read_record(picture.fs, picture.store.path(file))
    except OSError:
        view = None
    if view is not None and (view.get("session"), view.get("status")) == (chain.highest, end.status):
        return
    what = "is missing or no JSON" if view is None else f"says {view.get('status')!r:.20}, the chain {end.status!r}"
    fix = Fix(5, "write it anew from the chain", lambda: rewrite_view(picture, chain.job))
    picture.report("warning", file, "6.7", what, "fsrun check --fix", fix=fix)


def _check_id(picture: Picture) -> None:
    top = picture.chains["main"].highest if "main" in picture.chains else 0
    lock = picture.locks.get(("main", top))
    folder = picture.path.rpartition("/")[2]
    if lock is not None and lock.run is not None and ids.portable(lock.run) != folder:
        file = f"{layout.JOBS}/{layout.lock_name('main', top)}"
        message = f"the run is {lock.run!r:.80}, but its folder is {folder!r:.80}: it was renamed or copied"
        picture.report("note", file, "3", message, "name the run by its path; an id finds the other folder")
