"""The process in which graders run that may hang, crash or use up memory: ``worker SPEC READ WRITE MEMORY SHA256``.

Reads requests from descriptor READ, each pickled behind its length, and answers each with a line on WRITE. The grader
is loaded once. Whatever it does, the parent sees an answer or the end of this process; when the parent dies this
process goes too. Leaves to others: limits of time, and starting again (``adapters.grading``).
"""

from __future__ import annotations

import hashlib
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from fsrun.adapters import child
from fsrun.adapters.evaluation import EvaluationError
from fsrun.adapters.graders import Grade, file
from fsrun.adapters.worker import describe, load
from fsrun.core import codec

SIZE = 8
"""Bytes of the length before a request."""
_Grader = Callable[[str, Any, Mapping[str, Any]], Grade]


def grader_of(spec: str) -> _Grader:
    """Load a grader; an ``EvaluationError`` says what is wrong."""
    if spec == "math":
        from fsrun.adapters.graders import mathematics

        mathematics.load()
        return mathematics.grade
    function = load(spec)
    return lambda answer, label, row: file.call(function, answer, label, row)


def unchanged(spec: str, sha256: str) -> None:
    """Raise ``EvaluationError`` where the grader's file is another than when the plan was made."""
    path = spec.rpartition(":")[0]
    with open(path, "rb") as source:
        if hashlib.sha256(source.read()).hexdigest() != sha256:
            raise EvaluationError(f"{path}: changed since the plan was made; start the evaluation again to take it")


def main(spec: str, read: int, write: int, memory: int, sha256: str = "") -> None:
    """Answer requests until the parent closes its end.

    ``memory``: bytes of address space, 0 for any. ``sha256``: of the grader's file; empty: whatever is there.
    """
    child.die_with_parent()
    if memory:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, resource.getrlimit(resource.RLIMIT_AS)[1]))
    home = os.getcwd()
    incoming: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_requests, args=(read, incoming), daemon=True).start()
    os.set_inheritable(write, False)
    try:
        if sha256:
            unchanged(spec, sha256)
        grader = grader_of(spec)
    except BaseException as error:  # noqa: BLE001 - importing user code may raise anything
        own = isinstance(error, EvaluationError)
        reason = str(error) if own else f"{spec} cannot be loaded: {type(error).__name__}: {error}"[:500]
        _send(write, {"ready": False, "reason": reason, "error": None if own else describe(error)})
        return
    _send(write, {"ready": True})
    while True:
        answer = _answer(grader, incoming.get())
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.chdir(home)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                continue
        _send(write, answer)


def _answer(grader: _Grader, request: bytes) -> dict[str, Any]:
    try:
        grade = grader(*pickle.loads(request))
    except BaseException as error:  # noqa: BLE001 - also a MemoryError, and a row whose classes are not importable here
        grade = Grade(None, reason=f"the grader raised {type(error).__name__}: {error}"[:500])
    return {
        "score": grade.score,
        "correct": grade.correct,
        "extracted": _plain(grade.extracted),
        "reason": _plain(grade.reason),
    }


def _plain(text: str | None) -> str | None:
    """A text without half characters, which JSON does not take."""
    return None if text is None else text.encode("utf-8", "replace").decode()


def _requests(descriptor: int, out: queue.SimpleQueue[bytes]) -> None:
    with os.fdopen(descriptor, "rb") as source:
        while len(head := source.read(SIZE)) == SIZE:
            out.put(source.read(int.from_bytes(head, "little")))
    os._exit(0)


def _send(descriptor: int, answer: dict[str, Any]) -> None:
    data = memoryview(codec.encode_line(answer))
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
