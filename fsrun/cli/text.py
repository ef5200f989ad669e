"""Text that cannot drive a terminal: names, messages and console lines of a run are somebody else's bytes.

Also times, sizes and numbers as people read them, and the JSON that ``--json`` prints.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from fsrun.core.timing import silent_after

# C0, DEL, C1 (one of which opens escape sequences too), marks that reorder or hide text, line separators, surrogates.
_HIDDEN = "\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\ud800-\udfff"
_CONTROL = re.compile(f"[\x00-\x1f{_HIDDEN}]")
_CONTROL_IN_JSON = re.compile(f"[{_HIDDEN}]")
_UNITS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"))


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def clean(text: object) -> str:
    """Return text for one line of a terminal: control characters are shown as escapes."""
    return _CONTROL.sub(_escape, str(text))


def clean_lines(text: object) -> str:
    """Like ``clean``, for text of several lines: line ends stay, tabs become blanks."""
    return "\n".join(clean(line.expandtabs()) for line in str(text).split("\n"))


def age(seconds: float) -> str:
    """Return a duration as one number: ``40 s``, ``12 min``, ``3 h``, ``2 d``."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def number(value: object) -> str:
    """Return a score or a scalar with six digits; words such as ``NaN`` as they are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return clean(value)
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def status_text(facts: dict[str, Any]) -> str:
    """Return a job's status for people: ``failed (exit 3)``, ``running, silent 3 h``, ``crashed (proved dead)``."""
    status = str(facts["status"])
    if status != "running":
        reason = facts.get("reason")
        return clean(f"{status} ({reason})" if reason else status)
    silent = facts.get("silent_s")
    if silent is not None and silent > silent_after(facts.get("timeout")):
        return f"running, silent {age(silent)}"
    return status


def to_json(value: Any, *, decoded: bool = False) -> str:
    """Return a value as indented JSON whose characters cannot drive a terminal either.

    ``decoded`` says that every number came out of JSON, so that none is NaN; others are checked one by one.
    """
    import orjson

    from fsrun.core import codec

    try:
        data = orjson.dumps(value, option=orjson.OPT_INDENT_2) if decoded else codec.encode_shown(value, indented=True)
    except orjson.JSONEncodeError:  # a file name that is no UTF-8
        data = codec.encode_shown(value, indented=True)
    return _CONTROL_IN_JSON.sub(lambda found: f"\\u{ord(found.group()):04x}", data.decode())


def say(text: str) -> None:
    """Print one finished piece of text, now: who follows through a pipe sees it, and a closed pipe raises here."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    sys.stdout.flush()
