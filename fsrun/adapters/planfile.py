"""The YAML form of an evaluation (``--eval-config FILE.yaml``): several sets, each with settings of its own.

    defaults:                 # for all sets of this file
      max_response_len: 2048
    sets:
      - name: gsm8k
        path: gsm8k/test.parquet        # from the folder of this file
      - name: aime
        path: aime.jsonl
        samples: 16
        pass_k: [1, 16]
        temperature: 0.8

The keys of ``defaults`` and of a set are those of ``settings.SETTINGS``. Leaves to others: what they mean.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fsrun.adapters.settings import SetSource, quoted, read_settings, unknown
from fsrun.core.errors import UsageError

_MAX_BYTES = 1 << 20


def read(path: str) -> list[SetSource]:
    """Read the sets of a file; ``UsageError`` names file, line or set, and key."""
    try:
        return _read(path)
    except (ValueError, OverflowError) as error:  # numbers of some thousand digits, which Python writes as no text
        raise UsageError(f"{path}: {error}") from None


def _read(path: str) -> list[SetSource]:
    top = _load(path)
    for key in top:
        if key not in ("defaults", "sets"):
            raise UsageError(f"{path}: {unknown(key, ('defaults', 'sets'))}")
    folder = os.path.dirname(os.path.abspath(path))
    defaults = read_settings(_placed(_mapping(top.get("defaults"), f"{path}: defaults"), folder), f"{path}: defaults")
    sets = top.get("sets")
    if isinstance(sets, Mapping):
        sets = [{"name": name, **_mapping(value, f"{path}: set {name}")} for name, value in sets.items()]
    if not isinstance(sets, list) or not sets:
        raise UsageError(f"{path}: sets: is no list of eval sets, each with a name and a path")
    return [_set(item, number, path, folder, defaults) for number, item in enumerate(sets, 1)]


def _set(item: object, number: int, file: str, folder: str, defaults: Mapping[str, Any]) -> SetSource:
    said = dict(_mapping(item, f"{file}: set {number}"))
    name, path = said.pop("name", None), said.pop("path", None)
    where = f"{file}: set {number if name is None else name}"
    for key, value in (("name", name), ("path", path)):
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise UsageError(
                f"{where}: it needs a {key}" if value is None else f"{where}: {key} is {quoted(value)}, no text"
            )
    settings = read_settings(_placed(said, folder), where)
    return SetSource(str(name), os.path.join(folder, os.path.expanduser(str(path))), settings, where, defaults)


def _placed(said: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Settings with the files that they name taken from the folder of the YAML file."""
    placed = dict(said)
    for key, value in said.items():
        names_file = (key == "grader" and isinstance(value, str) and ".py:" in value) or (
            key == "chat_template" and isinstance(value, str) and value != "none" and "{" not in value
        )
        if names_file:
            placed[key] = os.path.join(folder, os.path.expanduser(value))
    return placed


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: it is no mapping of settings, but {quoted(value)}"[:200])
    return {str(key): inner for key, inner in value.items()}


def _load(path: str) -> Mapping[str, Any]:
    try:
        import yaml
    except ImportError:
        raise UsageError("--eval-config needs PyYAML: pip install 'fsrun[sglang]'") from None

    class Loader(yaml.SafeLoader):
        """Refuses a key that stands twice: the first value would be lost without a word."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen: set[object] = set()
            for key, _ in node.value:
                text = key.value
                if isinstance(text, str) and text in seen:
                    raise yaml.constructor.ConstructorError(
                        "", node.start_mark, f"the key {text!r} stands twice", key.start_mark
                    )
                seen.add(text if isinstance(text, str) else id(key))
            return super().construct_mapping(node, deep)

    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--eval-config {path}: {error.strerror or error}") from None
    if len(data) > _MAX_BYTES:
        raise UsageError(f"--eval-config {path}: more than {_MAX_BYTES >> 20} MiB; that is no configuration")
    try:
        top = yaml.load(data, Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise UsageError(f"{path}: {where}no YAML: {getattr(error, 'problem', None) or error}") from None
    except RecursionError:
        raise UsageError(f"{path}: nested too deeply") from None
    except Exception as error:  # noqa: BLE001 - what Python's types make of a wrong date or number
        raise UsageError(f"{path}: no YAML: {error}") from None
    return _mapping(top, path)
