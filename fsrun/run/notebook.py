"""The output of notebook cells, which passes no descriptor: it is forwarded as text.

Does: puts a stream in front of a notebook's that hands everything on, and a copy to the log. Leaves to others: what
passes descriptors (``console``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from fsrun.run.descriptors import Held

_KERNELS = ("ipykernel", "google.colab", "xeus_python", "pyodide_kernel")


def is_notebook(stream: object) -> bool:
    """Whether a standard stream is a notebook kernel's own."""
    return type(stream).__module__.startswith(_KERNELS) and hasattr(stream, "write")


class Forwarding:
    """Stands for ``sys.<name>``, with a copy of what is written to ``writer``; the rest is the inner stream's."""

    def __init__(self, name: str, writer: Held) -> None:
        self._fsrun_name = name
        self._fsrun_inner = getattr(sys, name)
        self._fsrun_writer = writer
        setattr(sys, name, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fsrun_inner, name)

    def write(self, text: str) -> Any:
        """Write, and copy to the log what fits."""
        result = self._fsrun_inner.write(text)
        try:
            if self._fsrun_writer.is_ours:
                os.write(self._fsrun_writer.number, str(text).encode("utf-8", "backslashreplace"))
        except Exception:  # noqa: BLE001 - the notebook has its text; the log does without
            pass
        return result

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    def restore(self) -> None:
        """Put the inner stream back, where this still stands."""
        if getattr(sys, self._fsrun_name, None) is self:
            setattr(sys, self._fsrun_name, self._fsrun_inner)
