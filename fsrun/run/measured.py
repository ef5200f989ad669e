"""What a run recorded of its machines and of what it started from, read back (protocol.md 6.13, 6.14). Reads only."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from fsrun.core import layout
from fsrun.core.ids import is_job, parse_number
from fsrun.core.scalars import read_sessions
from fsrun.core.system import parse_samples
from fsrun.run.listing import names_in, record_at

if TYPE_CHECKING:
    import pyarrow

    from fsrun.disk.fs import FileSystem
    from fsrun.run.load import Loader


def read_system(loader: Loader, jobs: Collection[str] | None) -> pyarrow.Table:
    """The samples that count, one row a figure: job, session, host, time, name, value; as they were written."""
    import pyarrow as pa

    from fsrun.disk.logs import CODES
    from fsrun.run.load import list_folder

    locks = loader.locks(list_folder(loader.fs, loader.path(layout.JOBS)))
    fences = read_sessions(locks).fences
    hosts = {(lock.job, lock.session): str(lock.holder.get("host", "")) for lock in locks}
    schema = pa.schema(
        [
            ("job", CODES),
            ("session", pa.int32()),
            ("host", CODES),
            ("time", pa.float64()),
            ("name", CODES),
            ("value", pa.float64()),
        ]
    )
    tables = []
    for job, session in _logs(loader, jobs):
        path = f"{layout.SYSTEM}/{job}/{layout.system_name(session)}"
        fence = fences.get((job, session))
        lines = 0
        for data in loader.lines(path, 0, None if fence is None else fence.get(path, 0)):
            samples, faults = parse_samples(data)
            for number, reason in faults:
                loader.problems.add(path, lines + number, reason)
            lines += data.count(b"\n")
            rows = [(sample.time, name, float(value)) for sample in samples for name, value in sample.values.items()]
            if rows:
                times, names, values = zip(*rows, strict=True)
                host = hosts.get((job, session), "")
                constants = [pa.repeat(pa.scalar(text, pa.string()), len(rows)) for text in (job, host)]
                columns = [
                    constants[0].dictionary_encode().cast(CODES),
                    pa.repeat(pa.scalar(session, pa.int32()), len(rows)),
                    constants[1].dictionary_encode().cast(CODES),
                    pa.array(times, pa.float64()),
                    pa.array(names, pa.string()).dictionary_encode().cast(CODES),
                    pa.array(values, pa.float64()),
                ]
                tables.append(pa.table(columns, schema=schema))
    return pa.concat_tables(tables).unify_dictionaries() if tables else schema.empty_table()


def _logs(loader: Loader, jobs: Collection[str] | None) -> list[tuple[str, int]]:
    from fsrun.run.load import list_folder

    found = []
    for job in list_folder(loader.fs, loader.path(layout.SYSTEM)):
        if is_job(job) and (jobs is None or job in jobs):
            names = list_folder(loader.fs, loader.path(layout.SYSTEM, job))
            numbers = [parse_number(name.removesuffix(".jsonl")) for name in names if name.endswith(".jsonl")]
            found += [(job, number) for number in numbers if number]
    return sorted(found)


def read_environment(fs: FileSystem, path: str, job: str, session: int | None = None) -> dict[str, Any]:
    """What a job's newest session that recorded it (or session ``session``) started from; empty where none did."""
    parsed = filter(None, map(layout.parse_environment_name, names_in(fs, f"{path}/{layout.FILES}")))
    numbers = sorted((number for owner, number in parsed if owner == job and session in (None, number)), reverse=True)
    for number in numbers:
        record = record_at(fs, f"{path}/{layout.FILES}/{layout.environment_name(job, number)}")
        if record:
            return record
    return {}
