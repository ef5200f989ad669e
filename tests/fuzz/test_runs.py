"""A whole run whose files were damaged at random: all readers, the check, the daemon, the commands say what is wrong.

None of them raises anything but what it documents, hangs, or writes into a run that it only reads.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given

import fsrun
from fsrun.core.errors import FsrunError
from fsrun.disk.fs import LocalFileSystem
from fsrun.run.check import check_run
from fsrun.run.inspect import inspect_run
from fsrun.run.listing import list_runs, read_run
from fsrun.web.content import Content
from fsrun.web.query import Query
from fsrun.web.row import Seen, read_row
from tests.fuzz.damage import BIG, HOW, Damage, befall, copy_of, damages, files_of, make_run, open_again
from tests.fuzz.garbage import SECONDS, bounded, examples
from tests.support.command import fsrun as command
from tests.support.keeper import HandDaemon

FS = LocalFileSystem()


@pytest.fixture(scope="module")
def runs(root: Path) -> tuple[Path, Path]:
    """One that has ended, and one whose main and evaluator are open."""
    ended = make_run(root)
    live = root / "live" / "speech" / "big"
    shutil.copytree(ended, live, symlinks=True)
    shutil.copy(root / "weights.pt", root / "live" / "weights.pt")
    open_again(live)
    return ended, live


def look(run: Path) -> Iterator[tuple[str, Callable[[], object], tuple[type[Exception], ...]]]:
    """All that reads a run: what, the call, and what it may raise."""
    usual = (FsrunError, OSError)
    reader = fsrun.RunReader(str(run))
    yield "open", lambda: fsrun.open(run), usual
    yield "scalars", reader.scalars, usual
    yield "tags", lambda: reader.scalars(["loss"]), usual
    yield "last", reader.last, usual
    yield "shown", lambda: (repr(reader), reader._repr_html_()), ()
    yield "media", reader.media, usual
    yield "tables", lambda: [table.read() for table in reader.tables()], (*usual, pa.ArrowException)
    yield "samples", reader.samples, usual
    yield "artifacts", lambda: [(one.files(), one.digests()) for one in reader.artifacts()], usual
    yield "system", reader.system, usual
    yield "environment", reader.environment, usual
    yield "inspect", lambda: inspect_run(FS, str(run), now_ns=10**18), usual
    yield "listed", lambda: list_runs(FS, str(run.parent), lambda *found: read_run(FS, *found, now_ns=10**18)), usual
    yield "row", lambda: read_row(FS, str(run), "speech/big", os.listdir(run), Seen(), now_ns=10**18), usual
    content = Content(FS)
    for page in (content.console, content.samples, content.media, content.tables, content.artifacts):
        yield f"page of {page.__name__}", lambda page=page: page(str(run), Query()), usual  # type: ignore[misc]
    yield "page of a table", lambda: content.table(str(run), Query([("path", "tables/t/0.main.1.1.parquet")])), usual
    yield "check", lambda: check_run(str(run)), usual


COMMANDS = (["show"], ["show", "--json"], ["logs"], ["check"], ["export", "-o", "-", "--format", "csv"])


def require_verdicts(run: Path, said: list[str]) -> None:
    for what, call, allowed in look(run):
        began = time.monotonic()
        try:
            call()
        except allowed:
            pass
        except Exception as error:
            raise AssertionError(f"{what} after {said}: {error!r}") from error
        assert time.monotonic() - began < SECONDS, (what, said)
    for name, *options in COMMANDS:
        result = command(name, str(run), *options, root=run.parent.parent)
        assert result.exit_code in (0, 1, 4, 5), (name, said, result.output)
        assert "fault in fsrun" not in result.output, (name, said, result.output)
    assert command("ls", root=run.parent.parent).exit_code == 0, said


def require_daemon(run: Path, said: list[str]) -> None:
    daemon = HandDaemon(run.parent.parent)
    daemon.sweep()
    daemon.live(40.0)
    assert not [message for _, message in daemon.problems if "fault" in message], (said, daemon.problems)


@given(damages())
@examples(5)
def test_a_damaged_run_that_has_ended_gives_verdicts(root: Path, runs: tuple[Path, Path], what: list[Damage]) -> None:
    with copy_of(runs[0], root) as run:
        said = befall(run, what)
        before = files_of(run)
        require_verdicts(run, said)
        assert files_of(run) == before, "who reads writes nothing"
        require_daemon(run, said)


@given(damages())
@examples(4)
def test_a_damaged_run_that_lives_gives_verdicts(root: Path, runs: tuple[Path, Path], what: list[Damage]) -> None:
    with copy_of(runs[1], root) as run:
        said = befall(run, what)
        require_verdicts(run, said)
        require_daemon(run, said)


@pytest.mark.parametrize("how", [how for how in HOW if how in ("folder", "pipe", "circle", "device", "sparse", "gone")])
def test_what_stands_in_place_of_each_kind_of_file_gives_verdicts(
    root: Path, runs: tuple[Path, Path], how: str
) -> None:
    """All files of one kind at once, a kind after the other."""
    kinds: dict[str, list[str]] = {}
    for name in files_of(runs[0]):
        if (runs[0] / name).is_file():
            kinds.setdefault(f"{name.partition('/')[0]} {name.rpartition('.')[2]}", []).append(name)
    for kind in sorted(kinds)[:: 3 if how == "pipe" else 7]:
        with copy_of(runs[0], root) as run:
            said = []
            for name in kinds[kind]:
                at = files_of(run).index(name)
                said += befall(run, [Damage(at, how, 0, 0)])
            for what, call, allowed in look(run):
                try:
                    call()
                except allowed:
                    pass
                except Exception as error:
                    raise AssertionError(f"{what} after {said}: {error!r}") from error


@pytest.mark.parametrize("name", ["run.json", "jobs/main.2.lock", "jobs/eval.1.end", "best.json"])
def test_a_record_of_a_size_that_is_none_costs_no_memory(root: Path, runs: tuple[Path, Path], name: str) -> None:
    with copy_of(runs[0], root) as run:
        with (run / name).open("wb") as file:
            file.truncate(BIG)
        with bounded(200 << 20):
            found = check_run(str(run))
            fsrun.open(run).scalars()
            inspect_run(FS, str(run), now_ns=10**18)
        assert name in {finding.file for finding in found}


@pytest.mark.parametrize("number", [10**18 - 1, 2**31])
def test_numbers_of_18_digits_in_names_are_never_counted_up_to(
    root: Path, runs: tuple[Path, Path], number: int
) -> None:
    with copy_of(runs[1], root) as run:
        lock = (run / "jobs" / "main.2.lock").read_bytes()
        for job in ("main", "eval"):
            (run / "jobs" / f"{job}.{number}.lock").write_bytes(lock)
            (run / "jobs" / f"{job}.{number - 1}.end").write_bytes(b"{}\n")
            (run / "scalars" / f"{job}.{number}.jsonl").write_bytes(b'{"step": 1, "x": 1}\n')
        (run / "scalars" / f"main.1.s{number}.jsonl").write_bytes(b'{"step": 1, "x": 1}\n')
        (run / "evals" / f"x_1.pt.{number}.json").write_bytes((run / "evals" / "weights.pt.1.json").read_bytes())
        for place in (f"retry/{number}", f"claimed/eval.1/{number}", f"claimed/eval.{number}/{number}"):
            (run / place).mkdir(parents=True)
            (run / place / "y_1.pt").write_bytes(b"x")
        (run / "queue" / f"z~{10**9 - 1}.pt").write_bytes(b"x")
        require_verdicts(run, [str(number)])
        require_daemon(run, [str(number)])
