"""API keys of engines: which there are, and how engines that fsrun starts learn of them.

Everybody on a host sees the command lines of its processes, so keys do not stand in those of engines: a file of
settings that only this user can read, which goes with the engine, has them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from fsrun.core.redaction import REDACTED

FILE = "keys.yaml"
_CONFIG = "--config"
_API, _ADMIN = "--api-key", "--admin-api-key"


@dataclass(frozen=True, slots=True)
class Keys:
    """What engines ask for: ``api`` for all that is asked, ``admin`` for weights and pauses (None: the same)."""

    api: str | None = field(default=None, repr=False)
    admin: str | None = field(default=None, repr=False)

    def settings(self) -> str | None:
        """The file of settings of an engine that is to ask for them; None where there are none."""
        found = {_API[2:]: self.api, _ADMIN[2:]: self.admin}
        lines = [f"{name}: {json.dumps(value)}\n" for name, value in found.items() if value is not None]
        return "".join(lines) or None


def take(arguments: Sequence[str], keys: Keys) -> tuple[tuple[str, ...], Keys]:
    """Take the keys out of an engine's arguments; they count before those of ``keys``.

    What a record has in place of a key is no key. With a file of settings of the user's, of which an engine takes one
    alone, keys stay where they are.
    """
    found: dict[str, str] = {}
    rest: list[str] = []
    left = list(arguments)
    while left:
        name, given, value = left.pop(0).partition("=")
        if name not in (_API, _ADMIN):
            rest.append(name + given + value)
            continue
        value = value if given else (left.pop(0) if left else "")
        if value and REDACTED not in value:
            found[name] = value
    taken = Keys(found.get(_API, keys.api), found.get(_ADMIN, keys.admin))
    if any(argument.partition("=")[0] == _CONFIG for argument in rest):
        given_keys = {_API: taken.api, _ADMIN: taken.admin}
        rest += [word for name, value in given_keys.items() if value is not None for word in (name, value)]
    return tuple(rest), taken


def in_arguments(arguments: Sequence[str]) -> bool:
    """Whether a file of settings of the user's keeps the keys in the command line."""
    return any(argument.partition("=")[0] == _CONFIG for argument in arguments)
