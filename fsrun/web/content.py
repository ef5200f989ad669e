"""What a run recorded besides scalars, in pages that stay small: console, samples, media, tables, artifacts.

Leaves to others: routes and JSON (``app``), the files themselves (``files``), how they are shown (static/run).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fsrun.core import layout
from fsrun.core.errors import NotFoundError, UsageError
from fsrun.core.ids import MAIN, is_job
from fsrun.disk.beneath import open_file
from fsrun.run.listing import as_map, as_text, names_in, read_chains, read_end
from fsrun.run.reader import RunReader
from fsrun.web import cells, console
from fsrun.web.answered import Samples
from fsrun.web.query import Query

if TYPE_CHECKING:
    from fsrun.disk.fs import FileSystem
    from fsrun.run.recorded import Artifact, Medium, TableFile

_FAR = 1 << 62
_MEDIA = 2000
"""Media that are given at once, of all tags together."""
_NAMES = 1000
"""Tags, tables and artifacts that are given at once."""
_STEPS = 5000
_PROBLEMS = 20
_TEXT = 20_000
_FACTS = ("name", "type", "version", "step", "time", "job", "session", "reference", "count", "size")


class Content:
    """Answers about what was recorded; called from several threads at once.

    ``run_path`` is the folder of a run. Raises ``UsageError`` for parameters that cannot be, ``NotFoundError`` where
    there is no such thing, ``FsrunError`` and ``OSError`` where the run cannot be read.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._samples = Samples()

    def console(self, run_path: str, query: Query) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/console``: ``job``, ``session``, ``offset`` or ``before``, ``limit``, ``find``.

        ``session``: the newest that has one. ``offset`` below 0: from the end; ``before``: what stands before a byte.
        ``failure`` in it is what the session failed of: the recording ends before Python prints that.
        """
        job = _job(query)
        names = names_in(self._fs, f"{run_path}/{layout.FILES}")
        sessions = sorted(number for number in (layout.parse_console_name(name, job) for name in names) if number)
        session = query.integer("session", sessions[-1] if sessions else None, least=1, most=10**9)
        facts: dict[str, Any] = {
            "job": job,
            "session": session,
            "sessions": sessions[-_NAMES:],
            "jobs": _with_console(names),
        }
        ends = names_in(self._fs, f"{run_path}/{layout.JOBS}")
        facts["failure"] = self._failure(run_path, job, session, ends)
        if session is None:
            return facts | {"size": 0, "offset": 0, "text": "", "next": 0, "done": False}
        path = f"{layout.FILES}/{layout.console_name(job, session)}"
        ended = layout.end_name(job, session) in ends
        descriptor = open_file(run_path, path)
        facts["path"] = path
        try:
            offset = query.integer("offset", 0, least=-_FAR, most=_FAR) or 0
            find = query.text("find")
            if find is not None:
                most = query.integer("limit", console.FOUND, least=1, most=10 * console.FOUND) or 1
                return facts | console.search(descriptor, find[: console.FOUND * 4], offset, most)
            limit = query.integer("limit", console.LIMIT, least=16, most=console.MOST) or console.LIMIT
            before = query.integer("before", least=0, most=_FAR)
            return facts | console.piece(descriptor, offset, limit, before, ended=ended)
        finally:
            os.close(descriptor)

    def _failure(self, run_path: str, job: str, session: int | None, names: list[str]) -> dict[str, Any] | None:
        number = session if session is not None else read_chains(names).get(job, (0, False))[0]
        if layout.end_name(job, number) not in names:
            return None
        end, problem = read_end(self._fs, run_path, job, number)
        if problem or end["status"] not in ("failed", "crashed"):
            return None
        error = as_map(end.get("error"))
        facts = {name: cells.cell(as_text(error.get(name)), _TEXT) for name in ("type", "message", "traceback")}
        reason = cells.cell(as_text(end.get("reason")), _TEXT)
        return facts | {"status": end["status"], "reason": reason, "session": number}

    def samples(self, run_path: str, query: Query) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/samples``: ``entry``, ``attempt``, ``offset``, ``limit``, ``set``, ``only``.

        ``beside``, ``beside_attempt``: the same samples of another entry, row for row.
        """
        return self._samples.answer(self._reader(run_path), query)

    def media(self, run_path: str, query: Query) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/media``; ``tag``, ``kind``: of these alone.

        Where they are many, some steps of each tag, with the first and the last; ``tags`` says how many there are.
        """
        reader = self._reader(run_path)
        wanted = query.text("tag")
        tags: dict[str, list[Medium]] = {}
        for medium in reader.media(kind=query.text("kind")):
            tags.setdefault(medium.tag, []).append(medium)
        told = [_tag(name, found) for name, found in list(tags.items())[:_NAMES]]
        chosen = {name: found for name, found in list(tags.items())[:_NAMES] if wanted in (None, name)}
        each = max(2, _MEDIA // max(1, len(chosen)))
        media = [_medium(reader, one) for found in chosen.values() for one in _thinned(found, each)]
        return {"tags": told, "total": len(tags), "media": media, **_problems(reader)}

    def tables(self, run_path: str, query: Query) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/tables``: each name with its steps and what its last one holds."""
        reader = self._reader(run_path)
        tables: dict[str, list[TableFile]] = {}
        for table in reader.tables():
            tables.setdefault(table.name, []).append(table)
        told = [
            {
                "name": name,
                "count": len(found),
                "steps": [table.step for table in found[-_STEPS:]],
                "rows": found[-1].rows,
                "size": found[-1].size,
                "columns": found[-1].columns[: cells.COLUMNS],
                "time": found[-1].time,
                "job": found[-1].job,
            }
            for name, found in list(tables.items())[:_NAMES]
        ]
        return {"tables": told, "total": len(tables), **_problems(reader)}

    def table(self, run_path: str, query: Query) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/table``: ``name``, ``step`` (else the last), ``offset``, ``limit``."""
        name, step = query.text("name"), query.integer("step", least=-_FAR, most=_FAR)
        if name is None:
            raise UsageError("name is missing: which table")
        offset = query.integer("offset", 0, least=0, most=_FAR) or 0
        limit = query.integer("limit", 100, least=1, most=1000) or 1
        reader = self._reader(run_path)
        found = [table for table in reader.tables(name) if step in (None, table.step)]
        if not found:
            raise NotFoundError(f"no table {name[:200]!r}" + ("" if step is None else f" at step {step}"))
        path = _inside(reader, found[-1].path)
        with cells.parquet(run_path, path) as file:
            page = cells.page(file, offset, limit)
        return {"name": name, "step": found[-1].step, "path": path, **page}

    def artifacts(self, run_path: str, query: Query) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/artifacts``; ``name``, ``version``: files of one; ``offset``, ``limit``."""
        reader = self._reader(run_path)
        name, version = query.text("name"), query.integer("version", least=0, most=_FAR)
        found = reader.artifacts(name)
        if name is not None and version is not None:
            offset = query.integer("offset", 0, least=0, most=_FAR) or 0
            limit = query.integer("limit", 500, least=1, most=5000) or 1
            one = next((item for item in found if item.version == version), None)
            if one is None:
                raise NotFoundError(f"no artifact {name[:200]!r} of version {version}")
            return _manifest(reader, one, offset, limit)
        told = [_artifact(reader, item) for item in found[-_STEPS:]]
        return {"artifacts": told, "total": len(found), **_problems(reader)}

    def environment(self, run_path: str, query: Query) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/environment``: ``job``, ``session``."""
        session = query.integer("session", least=1, most=10**9)
        return {"environment": self._reader(run_path).environment(_job(query), session)}

    def _reader(self, run_path: str) -> RunReader:
        return RunReader(run_path, fs=self._fs)


def _job(query: Query) -> str:
    job = query.text("job", MAIN) or MAIN
    if not is_job(job):
        raise UsageError(f"job={job[:100]!r} is no name of a job")
    return job


def _with_console(names: Sequence[str]) -> list[str]:
    """Jobs that have a console, main first."""
    found = set()
    for name in names:
        parts = name.removesuffix(".log").split(".")
        if name.endswith(".log") and len(parts) == 3 and parts[0] == "output" and is_job(parts[1]):
            found.add(parts[1])
    return sorted(found, key=lambda job: (job != MAIN, job))[:_NAMES]


def _inside(reader: RunReader, path: str) -> str:
    return path.removeprefix(f"{reader.path}/")


def _problems(reader: RunReader) -> dict[str, Any]:
    return {"problems": [str(problem)[:1000] for problem in reader.problems[:_PROBLEMS]]}


def _tag(name: str, found: Sequence[Medium]) -> dict[str, Any]:
    kinds = sorted({medium.kind for medium in found})
    return {"tag": name, "kinds": kinds, "count": len(found), "first": found[0].step, "last": found[-1].step}


def _thinned(found: Sequence[Medium], most: int) -> Sequence[Medium]:
    if len(found) <= most:
        return found
    return [found[round(place * (len(found) - 1) / (most - 1))] for place in range(most)]


def _medium(reader: RunReader, medium: Medium) -> dict[str, Any]:
    facts = {name: getattr(medium, name) for name in ("job", "session", "step", "time", "kind", "tag", "type", "size")}
    facts |= {name: cells.cell(getattr(medium, name), _TEXT) for name in ("text", "caption", "info")}
    return facts | {"path": None if medium.path is None else _inside(reader, medium.path)}


def _artifact(reader: RunReader, item: Artifact) -> dict[str, Any]:
    path = item.path if item.reference else _inside(reader, item.path)
    return {name: getattr(item, name) for name in _FACTS} | {"path": path}


def _manifest(reader: RunReader, item: Artifact, offset: int, limit: int) -> dict[str, Any]:
    sizes, digests = item.files(), item.digests()
    facts = _artifact(reader, item)
    files = [
        {
            "name": name,
            "size": size,
            "sha256": digests.get(name),
            # What is only referred to stands elsewhere, and nothing outside of the run is given.
            "path": None if item.reference else f"{facts['path']}/{name}",
        }
        for name, size in list(sizes.items())[offset : offset + limit]
    ]
    return {"artifact": facts, "files": files, "offset": offset, "total": len(sizes), **_problems(reader)}
