"""The output of notebook cells, which passes no descriptor: it is forwarded as text.

Does: puts a stream in front of a notebook's that hands everything on, and a copy to the log. Leaves to others: what
passes descriptors (``console``).
"""

from __future__ import annotations

import os
import sys
from typing import Any

from fsrun.run.descriptors import Held

_KERNELS = ("ipykernel", "google.colab", "xeus_python", "pyodide_kernel")


class Forwarding:
    """Stands for ``sys.<name>``; all but ``write`` and ``writelines`` is the inner stream's."""

    def __init__(self, name: str, inner: Any, writer: Held) -> None:
        self._fsrun_name = name
        self._fsrun_inner = inner
        self._fsrun_writer = writer

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

    def writelines(self, lines: Any) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    def restore(self) -> None:
        """Put the inner stream back, where this still stands."""
        if getattr(sys, self._fsrun_name, None) is self:
            setattr(sys, self._fsrun_name, self._fsrun_inner)


def forward(name: str, writer: Held | None) -> Forwarding | None:
    """Stand in front of ``sys.<name>`` where it is a notebook's stream, else return None.

    Without a ``writer`` nothing is changed: the answer tells whether it would be.
    """
    stream = getattr(sys, name, None)
    if not type(stream).__module__.startswith(_KERNELS) or not hasattr(stream, "write"):
        return None
    forwarding = Forwarding(name, stream, writer or Held(-1))
    if writer is not None:
        setattr(sys, name, forwarding)
    return forwarding
