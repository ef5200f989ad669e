"""What ``check --fix`` does: repairs without loss, each looks again before it writes (protocol.md 4.4, 4.9, 5.5).

None touches a session that may be alive: a session is closed by its end, or proved dead on this host. Each may be
stopped anywhere and done again.
"""

from __future__ import annotations

from contextlib import suppress

from fsrun.core import layout, queue
from fsrun.core.errors import HeldError
from fsrun.core.queue import Claim
from fsrun.core.records import holder_of
from fsrun.core.states import SessionState
from fsrun.core.timing import Timing
from fsrun.disk import identity
from fsrun.disk.clock import SystemClock
from fsrun.disk.store import Store
from fsrun.run import chain as chains
from fsrun.run import views
from fsrun.run.check.finding import Picture
from fsrun.run.moves import Moves
from fsrun.run.outside import Outside
from fsrun.run.places import known_facts, read_outcome
from fsrun.run.spill import Found, import_spill


def close_dead(picture: Picture, job: str, session: int) -> None:
    """Put the end of an open session whose process is proved dead. After a crash: it is open still, or closed."""
    now = chains.look(picture.fs, picture.path, job)
    lock = chains.read_lock(picture.store, job, session)
    holder = holder_of(lock)
    if lock is None or now.closed or now.highest != session:
        return
    if not identity.proved_dead(holder):
        raise HeldError(f"{picture.path}: session {session} of job {job} is held by {holder}; end that process first")
    beats = now.beats_of(session, lock.token)
    chains.close_session(
        picture.fs, SystemClock(), picture.path, job, session, beats=beats, reason="proved dead", found_by=picture.me
    )


def remove_name(picture: Picture, file: str) -> None:
    """Remove a beat that a closed session left. After a crash: it is there or gone."""
    with suppress(FileNotFoundError):
        picture.fs.unlink(picture.store.path(file))


def remove_temporary(picture: Picture, root: str, file: str) -> None:
    """Remove what a process that is gone had not published yet. After a crash: it is there, in part, or gone."""
    store = picture.store if root == picture.path else Store(picture.fs, root, "check", 0)
    store.remove(file)


def remove_samples(picture: Picture, entry: str, attempt: int) -> None:
    """Remove samples that the outcome of their attempt, which never changes, does not name.

    After a crash: they are there or gone.
    """
    outcome = read_outcome(picture.store, entry, attempt)
    if outcome is not None and outcome.samples is None:
        picture.store.remove(f"{layout.EVALS}/{layout.samples_name(entry, attempt)}")


def rewrite_view(picture: Picture, job: str) -> None:
    """Write the view of a closed session from its lock and end. After a crash: the old view or the new one."""
    now = chains.look(picture.fs, picture.path, job)
    if not now.closed:
        return
    views.write(picture.store, views.of_closed(picture.store, now))


def bring_spill(picture: Picture, spill: Found) -> None:
    """Import a spill of a closed session. After a crash: the piece is in the run, or the spill still stands."""
    now = chains.look(picture.fs, picture.path, spill.job)
    if spill.session == now.highest and not now.closed:
        message = f"{spill.path}: session {spill.session} of job {spill.job} is open; its process brings this by itself"
        raise HeldError(message)
    import_spill(picture.path, spill, fs=picture.fs)


def recover_claim(picture: Picture, unit: Store, claim: Claim) -> None:
    """Give a claim of a closed session its outcome and make its move (protocol.md 5.5).

    After a crash: it has its outcome or not, and has moved or not; whoever recovers next goes on from there.
    """
    if chains.look(picture.fs, picture.path, claim.job).state(claim.session) is not SessionState.CLOSED:
        return
    nobody = Outside(picture.path, 0, "", Timing(), picture.store, job="check")
    moves = Moves(nobody, unit, SystemClock(), picture.me)
    moves.run(queue.recover(claim), lambda found, _: known_facts(unit, found.entry))
    moves.clear_claims(claim.job, claim.session)


def build_data(picture: Picture) -> None:
    """Build data.parquet from the logs. After a crash: the old one, or none, or the new one."""
    from fsrun.run.compact import compact

    compact(picture.path, fs=picture.fs)
