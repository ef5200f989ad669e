"""What stands where in the queue (protocol.md 2, 5, 7): a listing that fails proves nothing."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from fsrun.core import codec
from fsrun.core.errors import NotFoundError
from fsrun.core.records import Finished
from fsrun.core.timing import FINISH_WAIT
from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.store import Store
from fsrun.run.entries import entries
from fsrun.run.places import look
from support.clock import FakeClock
from support.fs import FaultFS
from support.queue import evaluator, make_run, put_plain, states, where

pytestmark = pytest.mark.unit


@pytest.fixture(params=["in the run folder", "elsewhere"])
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    unit = tmp_path / ("unit" if request.param == "elsewhere" else "run")
    make_run(tmp_path / "run", unit)
    put_plain(unit, "step_1.pt")
    (unit / "queue/FINISHED").write_bytes(codec.encode_record(Finished(main_session=1).to_json()))
    return unit


@pytest.mark.parametrize("error", [errno.ENOENT, errno.ESTALE])
def test_a_queue_that_is_not_found_for_a_while_is_looked_for_again(unit: Path, tmp_path: Path, error: int) -> None:
    fs = FaultFS()
    fs.fail("names", match="/queue", error=error, times=6)
    context = evaluator(tmp_path / "run", fs, unit=unit)
    context.main = (1, "finished", 1)
    done = []
    for entry in entries(context, clock=FakeClock()):
        with entry:
            done.append(entry.name)
            entry.done({"eval/acc": 1})
    assert done == ["step_1.pt"]
    assert states(tmp_path / "run", "step_1.pt") == ["done"]
    assert where(unit) == {}


def test_a_queue_that_stays_away_is_an_error_after_half_a_minute_and_never_empty(unit: Path, tmp_path: Path) -> None:
    fs, clock = FaultFS(), FakeClock()
    fs.fail("names", match="/queue", error=errno.ENOENT, times=1 << 30)
    context = evaluator(tmp_path / "run", fs, unit=unit)
    context.main = (1, "finished", 1)
    with pytest.raises((NotFoundError, FileNotFoundError), match="queue"):
        next(entries(context, clock=clock))
    assert FINISH_WAIT <= sum(clock.slept) <= FINISH_WAIT + 5.0


@pytest.mark.parametrize("place", ["queue", "retry", "claimed"])
def test_links_in_a_circle_are_unreachable_and_never_empty(unit: Path, tmp_path: Path, place: str) -> None:
    context, clock = evaluator(tmp_path / "run", unit=unit), FakeClock()
    context.main = (1, "finished", 1)
    shutil.rmtree(unit / place, ignore_errors=True)
    (unit / place).symlink_to(place)
    if place != "queue":
        (unit / "queue" / "step_1.pt").unlink()
    with pytest.raises(OSError, match="symbolic links"):
        next(entries(context, clock=clock))
    for act in (context.unit.names, context.unit.present):
        with pytest.raises(OSError, match="symbolic links"):
            act(f"{place}/x" if act == context.unit.present else place)


def test_a_file_in_place_of_the_queue_is_unreachable_and_never_empty(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "queue").rmdir()
    (run / "queue").write_bytes(b"")
    context = evaluator(run)
    context.main = (1, "finished", 1)
    with pytest.raises(NotADirectoryError):
        next(entries(context, clock=FakeClock()))


def test_a_run_of_a_program_that_has_no_queue_has_nothing_waiting(tmp_path: Path) -> None:
    store = Store(LocalFileSystem(), str(tmp_path), "eval", 1)
    assert look(store).waiting == ()
    with pytest.raises(NotFoundError, match="unit"):
        look(store, elsewhere=True)
