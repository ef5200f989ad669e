"""The invariants of protocol.md 9, judged by the files alone, once nobody is at work any more."""

from __future__ import annotations

import re
from pathlib import Path

import folder
from driven import Failure, expect

TEMPORARY = re.compile(r"\.tmp-[a-z0-9][a-z0-9_-]*\.[1-9][0-9]*-.+", re.DOTALL)


def check(run: Path, handed_over: set[str], *, killed: bool) -> None:
    """Raise ``Failure`` for the first thing that is not so.

    ``handed_over``: entries of which is known that they once stood in ``queue/``. ``killed``: a process was killed, so
    that temporaries, torn last lines and full trash/ are nobody's fault.
    """
    _sessions(run)
    _entries(run, handed_over)
    _outcomes(run)
    _logs(run, killed)
    left = folder.temporaries(run)
    expect(killed or not left, f"temporaries are left: {', '.join(left[:5])}", "7", run)
    hidden = [path.rpartition("/")[2] for path in left if not path.startswith("trash/")]
    nobodys = [name for name in hidden if not TEMPORARY.fullmatch(name)]
    expect(not nobodys, f"these name no session, so that nobody may clear them: {nobodys[:5]}", "3", run)


def _sessions(run: Path) -> None:
    files = folder.job_files(run)
    for job in {file.job for file in files}:
        locks = {f.session for f in files if f.job == job and f.kind == "lock"}
        ends = {f.session for f in files if f.job == job and f.kind == "end"}
        expect(locks == set(range(1, len(locks) + 1)), f"the locks of {job} are {sorted(locks)}", "9, 1")
        expect(ends <= locks, f"{job} has ends without a lock: {sorted(ends - locks)}", "4")
        open_ones = locks - ends
        expect(open_ones <= {len(locks)}, f"sessions {sorted(open_ones)} of {job} are open beside later ones", "9, 1")
        for session in locks:
            token = folder.lock(run, job, session).get("token")
            mine = [f.name for f in files if (f.job, f.session, f.token) == (job, session, token)]
            expect(len(mine) <= 1, f"session {session} of {job} has several beats: {mine}", "9, 2")


def _entries(run: Path, handed_over: set[str]) -> None:
    stands = folder.places(run)
    outcomes = folder.outcomes(run)
    for entry, where in stands.items():
        expect(len(where) == 1, f"{entry} stands in several places: {', '.join(where)}", "9, 4")
        top, *inner = where[0].split("/")[:-1]
        mine = {k: outcome.get("state") for (name, k), outcome in outcomes.items() if name == entry}
        if top in ("retry", "claimed"):
            needed = set(range(1, int(inner[-1])))
            expect(needed <= mine.keys(), f"{where[0]}: an outcome of an earlier attempt is missing", "9, 5")
            over = [k for k in mine if k > int(inner[-1])]
            expect(not over, f"{where[0]}: attempt {over} has an outcome already", "5.3")
        if top == "best":
            expect("done" in mine.values(), f"{where[0]} has no outcome done", "9, 5")
        if top == "failed":
            states = list(mine.values())
            given_up = states.count("failed") >= 3 or states.count("lost") >= 10
            expect(given_up, f"{where[0]} has the outcomes {mine}", "5.3")
    for entry in sorted(handed_over - stands.keys()):
        ends = {outcome.get("state") for (name, _), outcome in outcomes.items() if name == entry}
        expect(ends & {"done", "skipped"}, f"{entry} is lost: it stands nowhere, its outcomes are {ends}", "9, 4")


def _outcomes(run: Path) -> None:
    found = folder.outcomes(run)
    for (entry, attempt), outcome in found.items():
        said = (outcome.get("entry"), outcome.get("attempt"))
        where = run / "evals" / f"{entry}.{attempt}.json"
        expect(said == (entry, attempt), f"evals/{where.name} speaks of {said}", "6.5", where)
        known = ("done", "failed", "lost", "skipped", "returned")
        expect(
            outcome.get("state") in known, f"evals/{where.name} has the state {outcome.get('state')!r}", "6.5", where
        )
    for entry in {entry for entry, _ in found}:
        done = [k for (name, k), outcome in found.items() if name == entry and outcome.get("state") == "done"]
        expect(len(done) <= 1, f"{entry} is done {len(done)} times", "9, 6", run / "evals")


def _logs(run: Path, killed: bool) -> None:
    for lock in folder.job_files(run, kind="lock"):
        folder.lines(run, lock.job, lock.session)
        path = run / "scalars" / f"{lock.job}.{lock.session}.jsonl"
        data = path.read_bytes() if path.name in folder.names(run / "scalars") else b""
        expect(killed or data[-1:] in (b"", b"\n"), f"{path.name} ends without a newline", "6.8", path)
        fence = folder.lock(run, lock.job, lock.session).get("fence") or {}
        for name, size in fence.items():
            log = run / name
            held = log.read_bytes() if log.is_file() else b""
            cut = held[:size]
            expect(
                len(cut) == size and cut[-1:] in (b"", b"\n"),
                f"the fence of {lock.name} cuts {name} at byte {size}, which ends no line",
                "9, 7",
                run / "jobs" / lock.name,
            )


def unchanged(run: Path, seen: dict[Path, bytes]) -> None:
    """Raise ``Failure`` where a record that stood is another one now, or gone."""
    for path, data in seen.items():
        try:
            now = path.read_bytes()
        except FileNotFoundError:
            if path.parent.name == "meta" or not run.exists():
                continue  # A name that was reserved and not used may be given up.
            raise Failure(f"{path.name} stood, and is gone", "9, 3", path) from None
        expect(now == data, f"{path.name} has changed since it stood", "9, 3", path)
