"""The vectors of tests/conformance: run folders with the reading that is expected of them.

Does: finds them, makes the copy that a client reads (with what git cannot store), names each difference. Leaves to
others: making them, running clients.
"""

from __future__ import annotations

import base64
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "tests" / "conformance"
GROUPS = ("valid", "invalid", "sequence")
WORDS = ("NaN", "Infinity", "-Infinity")


@dataclass(frozen=True, slots=True)
class Vector:
    """One run folder at one moment."""

    name: str
    """``valid/NAME``, ``invalid/NAME`` or ``sequence/NAME/I``."""
    folder: Path

    @property
    def expected(self) -> dict[str, Any]:
        """The object of its expected.json."""
        value: dict[str, Any] = json.loads((self.folder / "expected.json").read_text("utf-8"))
        return value

    def copy(self, into: Path) -> Path:
        """Copy the run to ``<into>/runs/p/r``, with what more.json adds; returns that folder."""
        run = into / "runs" / "p" / "r"
        run.parent.mkdir(parents=True)
        shutil.copytree(self.folder / "run", run, symlinks=True)
        more = self.folder / "more.json"
        if not more.exists():
            more = self.folder.parent / "more.json"
        if more.exists():
            _add(run, json.loads(more.read_text("utf-8")))
        return run


def _add(run: Path, more: Mapping[str, Any]) -> None:
    for name in more.get("folders", ()):
        (run / name).mkdir(parents=True, exist_ok=True)
    for item in more.get("files", ()):
        path = _place(run, item)
        with open(path, "wb") as file:
            file.write(base64.b64decode(item["base64"]) if "base64" in item else item.get("text", "").encode())
    for item in more.get("links", ()):
        os.symlink(item["target"], _place(run, item))


def _place(run: Path, item: Mapping[str, Any]) -> bytes:
    name = base64.b64decode(item["name_base64"]) if "name_base64" in item else str(item["name"]).encode()
    path = os.path.join(os.fsencode(run), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return path


def find(folder: Path = FOLDER) -> Iterator[Vector]:
    """All vectors below ``folder``, in order."""
    for group in GROUPS:
        for path in sorted((folder / group).glob("*")):
            if group != "sequence" and (path / "run").is_dir():
                yield Vector(f"{group}/{path.name}", path)
            elif group == "sequence":
                for moment in sorted((p for p in path.glob("*") if p.name.isdecimal()), key=lambda p: int(p.name)):
                    yield Vector(f"{group}/{path.name}/{moment.name}", moment)


def differences(expected: object, found: object, where: str = "") -> list[str]:
    """Every place where ``found`` is not what was expected: numbers as numbers, the rest as it is; nothing if none."""
    place = where or "the reading"
    if isinstance(expected, dict) and isinstance(found, dict):
        return _of_objects(expected, found, where)
    if isinstance(expected, list) and isinstance(found, list):
        pairs = zip(expected, found, strict=False)
        list_of = [line for i, (a, b) in enumerate(pairs) for line in differences(a, b, f"{place}[{i}]")]
        if len(expected) != len(found):
            list_of.append(f"{place}: {len(found)} items {_short(found)}, expected {len(expected)}: {_short(expected)}")
        return list_of
    return [] if _same(expected, found) else [f"{place} is {_short(found)}, expected {_short(expected)}"]


def _of_objects(expected: Mapping[str, Any], found: Mapping[str, Any], where: str) -> list[str]:
    lines: list[str] = []
    for key in sorted(expected.keys() | found.keys()):
        place = f"{where}.{key}" if where else key
        if key not in found:
            lines.append(f"{place} is missing, expected {_short(expected[key])}")
        elif key not in expected:
            lines.append(f"{place} is {_short(found[key])}, expected none")
        else:
            lines += differences(expected[key], found[key], place)
    return lines


def _same(expected: object, found: object) -> bool:
    if _is_number(expected) and _is_number(found):
        a, b = float(expected), float(found)  # type: ignore[arg-type]
        return a == b and not math.isnan(a)
    return type(expected) is type(found) and expected == found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 160 else f"{text[:157]}..."
