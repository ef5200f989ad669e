"""Writes the vectors of tests/conformance: run folders, each with the reading that is expected of any client.

    .venv/bin/python tools/make_vectors            write what is missing or different, remove what is no vector's
    .venv/bin/python tools/make_vectors --check    write nothing; exit with 1 and name the files unless all are current

The same bytes come out everywhere and always. The expected readings are literals beside the files (docs/clients.md says
how they look): no reader of fsrun makes them, since it is one of those that are judged by them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import of_data
import of_evaluations  # noqa: F401 - each adds its vectors
import of_finished  # noqa: F401
import of_json  # noqa: F401
import of_lines  # noqa: F401
import of_moments  # noqa: F401
import of_names  # noqa: F401
import of_outcomes  # noqa: F401
import of_points  # noqa: F401
import of_queue  # noqa: F401
import of_records  # noqa: F401
import of_sessions  # noqa: F401
from parts import VECTORS, Json, Moment, Vector

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "conformance"
GROUPS = ("valid", "invalid", "sequence")


def main() -> int:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description="Write the vectors of tests/conformance.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 unless all is current")
    parser.add_argument("--folder", type=Path, default=FOLDER, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    wanted = dict(all_files())
    found = {path for group in GROUPS for path in files_below(asked.folder, group)}
    missing = sorted(wanted.keys() - found)
    surplus = sorted(found - wanted.keys())
    stale = sorted(path for path in wanted.keys() & found if not is_current(asked.folder / path, wanted[path]))
    if asked.check:
        for what, paths in (("missing", missing), ("no vector's", surplus), ("different", stale)):
            for path in paths:
                print(f"{what}: {path!a}")
        return 1 if missing or surplus or stale else 0
    for path in surplus:
        (asked.folder / path).unlink()
        for parent in (asked.folder / path).parents:
            if parent == asked.folder or any(parent.iterdir()):
                break
            parent.rmdir()
    for path in missing + stale:
        (asked.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (asked.folder / path).write_bytes(wanted[path])
    print(f"{len(VECTORS)} vectors, {len(wanted)} files: {len(missing + stale)} written, {len(surplus)} removed")
    return 0


def is_current(path: Path, wanted: bytes) -> bool:
    """Whether a file is as it should be: to the byte, but for Parquet files, which each version of pyarrow writes."""
    if path.is_symlink():
        return False
    found = path.read_bytes()
    return found == wanted or (path.suffix == ".parquet" and of_data.says_the_same(found, wanted))


def files_below(folder: Path, group: str) -> Iterator[str]:
    """Paths of all files, and of links, below one group."""
    for parent, folders, names in os.walk(folder / group):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        yield from (os.path.relpath(os.path.join(parent, name), folder) for name in names + links)


def all_files() -> Iterator[tuple[str, bytes]]:
    """Every file below tests/conformance that belongs to a vector."""
    seen: set[str] = set()
    for vector in VECTORS:
        top = f"{vector.group}/{vector.name}"
        if top in seen:
            raise SystemExit(f"tools/make_vectors: two vectors are called {top}")
        seen.add(top)
        for number, moment in enumerate(vector.moments, 1):
            folder = f"{top}/{number}" if vector.group == "sequence" else top
            yield f"{folder}/expected.json", expected(vector, moment)
            if moment.more:
                yield f"{folder}/more.json", json.dumps(moment.more).encode() + b"\n"
            for path, data in moment.files.items():
                yield f"{folder}/run/{path}", data


def expected(vector: Vector, moment: Moment) -> bytes:
    """The text of expected.json: a line for each key, and for each key of the reading."""
    value: Json = {"about": moment.about, "rules": list(vector.rules), "reading": moment.reading}
    lines = []
    for key, inner in value.items():
        text = json.dumps(inner)
        if key == "reading":
            pairs = ",\n".join(f'    "{name}": {json.dumps(part)}' for name, part in inner.items())
            text = f"{{\n{pairs}\n  }}"
        lines.append(f'  "{key}": {text}')
    if vector.group == "invalid":
        items = ",\n".join(f"    {json.dumps(item)}" for item in moment.check)
        lines.append(f'  "check": [\n{items}\n  ]' if items else '  "check": []')
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


if __name__ == "__main__":
    sys.exit(main())
