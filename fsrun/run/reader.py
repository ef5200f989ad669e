"""Read a run from Python: scalars as Arrow, pandas or NumPy, whole or as they come (protocol.md 8).

    df = fsrun.open("runs/speech/big").scalars(["eval/acc"]).to_pandas()

Writes nothing, and needs no right to. Every call reads afresh, so that a live run may be asked again and again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from fsrun.core import layout
from fsrun.core.errors import NotFoundError
from fsrun.core.ids import MAIN
from fsrun.core.records import Lock
from fsrun.disk.clock import SystemClock
from fsrun.run.locate import resolve_run

if TYPE_CHECKING:
    import numpy
    import pyarrow

    from fsrun.core.scalars import Point, Problem
    from fsrun.disk.clock import Clock
    from fsrun.disk.fs import FileSystem
    from fsrun.run.load import Loader
    from fsrun.run.recorded import Artifact, Medium, TableFile
    from fsrun.run.sampled import SamplesFile

__all__ = ["RunReader", "open", "resolve_run"]

COLUMNS = ("job", "tag", "step", "time", "value", "session")


def open(run: str | os.PathLike[str], root: str | os.PathLike[str] | None = None) -> RunReader:  # noqa: A001 - fsrun.open
    """Open a run for reading: ``run`` is a path, ``project/run``, an id under ``root`` or its start, or ``latest``.

    Root: ``root``, else $FSRUN_ROOT, else ``./runs``. Raises ``NotFoundError`` naming the root that was searched, and
    ``UsageError`` where an id names several runs. Nothing is written, now or later.
    """
    from fsrun.run.locate import guess_run

    try:
        return RunReader(resolve_run(run, root))
    except NotFoundError:
        guessed = guess_run(os.fspath(run), None if root is None else os.fspath(root))
        if guessed is None:
            raise
    return RunReader(guessed)


class RunReader:
    """One run, read-only.

    ``path``: its folder. ``project``, ``id``: as they were given to ``init``. ``problems``: what could not be read so
    far, each place once: (path, line, reason); lines that are faulty are skipped and never an exception.
    """

    def __init__(self, path: str, *, fs: FileSystem | None = None, clock: Clock | None = None) -> None:
        from fsrun.disk.fs import LocalFileSystem

        self.path = path
        self._fs = fs or LocalFileSystem()
        self._clock = clock or SystemClock()
        self._loader: Loader | None = None
        self._ids: tuple[str, str] | None = None

    def __repr__(self) -> str:
        return f"RunReader({self.path!r})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the state of the run as it is now."""
        from fsrun.run.card import read_card

        return read_card(self.path)

    @property
    def project(self) -> str:
        """The project's id, as it was given to ``init``."""
        return self._read_ids()[0]

    @property
    def id(self) -> str:
        """The run's id, as it was given to ``init``."""
        return self._read_ids()[1]

    @property
    def problems(self) -> list[Problem]:
        """What could not be read by the calls made so far."""
        return self._load.problems.found

    def scalars(
        self, tags: str | Iterable[str] | None = None, jobs: str | Iterable[str] | None = None, all: bool = False
    ) -> pyarrow.Table:
        """The scalars: columns job, tag (dictionaries of text), step (int64), time (s since 1970, UTC), value, session.

        ``tags``, ``jobs``: of these alone (None: all); a name that the run does not have gives no rows. Sorted by tag
        and step, and each step of a tag has one value: of equal steps the last; where a main job was resumed from an
        earlier step, or a side job logged the same name, the later values from its first step on. ``all=True`` gives
        every stored value instead, sorted by tag, job and session, then as they were logged.

        A value that was no number of 64 bits is rounded to one (integers past 2^53). Raises ``OSError`` where the
        folder cannot be read.
        """
        wanted = None if tags is None else frozenset([tags] if isinstance(tags, str) else tags)
        return self._table(wanted, [jobs] if isinstance(jobs, str) else jobs, all).select(COLUMNS)

    def series(self, tag: str, job: str | None = None) -> tuple[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]]:
        """One scalar as two NumPy arrays of one length: steps (int64, rising) and values (float64). Needs NumPy."""
        table = self._table(frozenset([tag]), None if job is None else [job], False)
        return table["step"].to_numpy(), table["value"].to_numpy()

    def tags(self) -> list[str]:
        """The names of all scalars that have a value, sorted."""
        return sorted(self.scalars()["tag"].unique().to_pylist())

    def last(self) -> dict[str, tuple[int, float]]:
        """For each scalar the value at its highest step: tag -> (step, value)."""
        from fsrun.run.points import last_of_tags

        rows = last_of_tags(self._table(None, None, False)).select(("tag", "step", "value"))
        return {tag: (step, value) for tag, step, value in zip(*rows.to_pydict().values(), strict=True)}

    def follow(
        self,
        tags: str | Iterable[str] | None = None,
        jobs: str | Iterable[str] | None = None,
        *,
        replay: bool = True,
        poll: float = 0.5,
        stop: Callable[[], bool] | None = None,
    ) -> Iterator[Point]:
        """Yield points as they are logged: what is there first (unless ``replay=False``), then each new one.

        Ends when every job has ended and all was yielded, when the run is gone, or when ``stop()`` says so; looks every
        ``poll`` seconds. Points of one job come in the order in which they were logged. New sessions, takeovers and
        compaction are followed. A point that a later one replaces or voids has been yielded by then: ``scalars()`` says
        what stands.
        """
        from fsrun.run.follow import follow

        wanted = None if tags is None else frozenset([tags] if isinstance(tags, str) else tags)
        named = None if jobs is None else frozenset([jobs] if isinstance(jobs, str) else jobs)
        return follow(self._load, self._clock, wanted, named, replay=replay, poll=poll, stop=stop)

    def media(self, tag: str | None = None, kind: str | None = None, all: bool = False) -> list[Medium]:
        """Images, sounds, videos and texts, sorted by tag and step; each has the ``path`` of its file, or its ``text``.

        ``tag``, ``kind`` (image, audio, video, text): of these alone. Where a main job was resumed from an earlier
        step, its later session replaces the tag from its first step on; ``all=True`` gives everything. Lines that are
        faulty, or whose files would be outside of the run folder, are left out and stand in ``problems``.
        """
        from fsrun.run.recorded import read_media

        found = read_media(self._load, every=all)
        return [item for item in found if tag in (None, item.tag) and kind in (None, item.kind)]

    def tables(self, name: str | None = None, all: bool = False) -> list[TableFile]:
        """The tables, sorted by name and step; ``read()`` gives one as Arrow. The rest: as ``media``."""
        from fsrun.run.recorded import read_tables

        return [item for item in read_tables(self._load, every=all) if name in (None, item.name)]

    def table(self, name: str, step: int | None = None) -> pyarrow.Table:
        """One table as Arrow: of its last step, or of ``step``. Raises ``NotFoundError`` where there is none."""
        found = [item for item in self.tables(name) if step in (None, item.step)]
        if not found:
            at = "" if step is None else f" at step {step}"
            raise NotFoundError(f"{self.path}: no table {name!r:.200}{at}")
        return found[-1].read()

    def samples(self, entry: str | None = None, step: int | None = None, attempt: int | None = None) -> pyarrow.Table:
        """Prompts with their answers and grades, one row a sample: entry, attempt, step, and the columns of 6.16.

        ``entry``, ``step``: of these alone. Without ``attempt`` those of evaluations that are done, else of that
        attempt, failed ones too. Sorted by step. Files that cannot be read, or are not what their outcome names, are
        left out and stand in ``problems``. ``UsageError`` where they are more than 256 MB as they are stored:
        ``sampled()`` gives them one by one.
        """
        from fsrun.run.sampled import read_samples

        found = self.sampled(entry, step)
        wanted = [f for f in found if (f.state == "done" if attempt is None else f.attempt == attempt)]
        return read_samples(self._load, wanted)

    def sampled(self, entry: str | None = None, step: int | None = None) -> list[SamplesFile]:
        """The evaluations whose samples were kept, sorted by step, also failed ones; ``read()`` gives one as Arrow."""
        from fsrun.run.sampled import find_samples

        return [f for f in find_samples(self._load, entry) if step in (None, f.step)]

    def artifacts(self, name: str | None = None) -> list[Artifact]:
        """The artifacts, sorted by name and version, with their ``path``, ``files()`` and ``digests()``."""
        from fsrun.run.recorded import read_artifacts

        return [item for item in read_artifacts(self._load) if name in (None, item.name)]

    def system(self, jobs: str | Iterable[str] | None = None) -> pyarrow.Table:
        """Samples of the machines, one row a figure: job, session, host, time (s since 1970, UTC), name, value.

        Names, such as ``job/cpu``, ``host/memory``, ``gpu/0/util``, and their units are in protocol.md 6.13; a figure
        that could not be measured has no row. ``jobs``: of these alone. Raises ``OSError``.
        """
        from fsrun.run.measured import read_system

        return read_system(self._load, None if jobs is None else frozenset([jobs] if isinstance(jobs, str) else jobs))

    def environment(self, job: str = MAIN, session: int | None = None) -> dict[str, Any]:
        """What a job started from: commit, packages, command, host, ... (protocol.md 6.14).

        ``session``: of this one, else of the newest that recorded it. Empty where it was not recorded.
        """
        from fsrun.run.measured import read_environment

        return read_environment(self._fs, self.path, job, session)

    @property
    def _load(self) -> Loader:
        if self._loader is None:
            from fsrun.run.load import Loader

            self._loader = Loader(self._fs, self.path)
        return self._loader

    def _table(self, tags: frozenset[str] | None, jobs: Iterable[str] | None, every: bool) -> pyarrow.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        snapshot = self._load.load(tags)
        table = snapshot.table
        if not every and not snapshot.counted:
            table = self._load.rules(snapshot).apply(table)
        if jobs is not None:
            table = table.filter(
                pc.is_in(table["job"].cast(pa.string()), value_set=pa.array(sorted(jobs), pa.string()))
            )
        return table

    def _read_ids(self) -> tuple[str, str]:
        if self._ids is None:
            names = [layout.lock_name(MAIN, 1)]
            lock: Lock | None = next(iter(self._load.locks(names)), None)
            folder, _, run = self.path.rpartition("/")
            project = folder.rpartition("/")[2]
            self._ids = ((lock and lock.project) or project, (lock and lock.run) or run)
        return self._ids
