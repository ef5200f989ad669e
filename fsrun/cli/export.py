"""``fsrun export RUN -o FILE``: the scalars of a run as CSV, JSON, JSON lines or Parquet."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO

import click

from fsrun.cli.busy import busy
from fsrun.cli.options import find_run, root_option, run_argument
from fsrun.cli.text import clean
from fsrun.core.errors import UsageError

FORMATS = ("csv", "json", "jsonl", "parquet")
_ROWS = 50_000


@click.command(short_help="Write the scalars as CSV, JSON, JSON lines or Parquet.")
@run_argument
@root_option
@click.option("--tag", "tags", multiple=True, help="This scalar; may be given several times.  [default: all]")
@click.option("--job", "jobs", multiple=True, help="Of this job; may be given several times.  [default: all]")
@click.option("--all", "every", is_flag=True, help="Also values that were replaced or voided by later ones.")
@click.option("-o", "--output", required=True, metavar="FILE", help="Where to; - is stdout, as csv.")
@click.option("--format", "kind", type=click.Choice(FORMATS), help="What as.  [default: by the suffix of FILE]")
def command(
    run: str, root: str | None, tags: tuple[str, ...], jobs: tuple[str, ...], every: bool, output: str, kind: str | None
) -> None:
    """Write the scalars of a run: columns job, tag, step, time (s since 1970, UTC), value, session.

    NaN and infinities are the words NaN, Infinity and -Infinity. After a crash: FILE is the old one or the new one.
    """
    kind = kind or _by_suffix(output)
    from fsrun.run.reader import open as open_run

    reader = open_run(find_run(run, root))
    with busy(f"reading {reader.path}"):
        if tags:
            _refuse_unknown(reader.tags(), tags, reader.path)
        table = reader.scalars(list(tags) or None, list(jobs) or None, all=every)
    write = WRITERS[kind]
    if output == "-":
        write(table, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    with busy(f"writing {output}"):
        _write_file(output, lambda file: write(table, file))
    click.echo(f"{table.num_rows} values to {clean(output)}", err=True)


def _by_suffix(output: str) -> str:
    kind = output.rpartition(".")[2].lower()
    if output == "-":
        return "csv"
    if kind not in FORMATS:
        raise UsageError(f"{output}: the format does not show in the name; add --format ({', '.join(FORMATS)})")
    return kind


def _refuse_unknown(known: Any, wanted: tuple[str, ...], path: str) -> None:
    missing = [tag for tag in wanted if tag not in set(known)]
    if missing:
        raise UsageError(f"{path}: no scalar named {missing[0]}; there are: {', '.join(sorted(known)) or 'none'}")


def _write_file(path: str, write: Callable[[BinaryIO], None]) -> None:
    """Write under a hidden name beside ``path``, then rename; into a device or a pipe directly.

    After a crash: the old file, and perhaps the hidden one.
    """
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        with open(path, "wb") as file:
            write(file)
        return
    folder, name = os.path.split(path)
    hidden = os.path.join(folder, f".{name[:100]}.{secrets.token_hex(4)}")
    try:
        with open(hidden, "xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(hidden, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        with suppress(OSError):
            os.unlink(hidden)


def _rows(table: Any) -> Iterator[dict[str, Any]]:
    """Rows as dictionaries, a part at a time, so that ten million do not stand in memory at once."""
    for batch in table.to_batches(max_chunksize=_ROWS):
        yield from batch.to_pylist()


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    from fsrun.core.codec import to_word

    value = row["value"]
    return row | {"value": to_word(value) if isinstance(value, float) else value}


def write_csv(table: Any, file: BinaryIO) -> None:
    """Write CSV with a head line. A cell that a spreadsheet would run as a formula stays as it is: it is data."""
    import csv
    import io

    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    try:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(table.column_names)
        writer.writerows(_plain(row).values() for row in _rows(table))
    finally:
        text.detach()


def write_jsonl(table: Any, file: BinaryIO) -> None:
    """Write one JSON object a line."""
    import orjson

    for row in _rows(table):
        file.write(orjson.dumps(_plain(row), option=orjson.OPT_APPEND_NEWLINE))


def write_json(table: Any, file: BinaryIO) -> None:
    """Write one JSON array, an object a line."""
    import orjson

    before = b"[\n"
    for row in _rows(table):
        file.write(before + orjson.dumps(_plain(row)))
        before = b",\n"
    file.write(b"\n]\n" if before == b",\n" else b"[]\n")


def write_parquet(table: Any, file: BinaryIO) -> None:
    """Write Parquet."""
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, file, compression="zstd")


WRITERS: dict[str, Callable[[Any, BinaryIO], None]] = {
    "csv": write_csv,
    "json": write_json,
    "jsonl": write_jsonl,
    "parquet": write_parquet,
}
