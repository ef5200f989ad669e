"""The child process in which a user's function runs: ``python -m fsrun.adapters.worker FILE.py:NAME READ WRITE``.

Reads one request a line from descriptor READ and answers one line on WRITE. The function is loaded once: a model stays
loaded between entries. Standard output and error lead where the parent's lead. Whatever the function does, the parent
sees an answer or the end of this process; when the parent dies this process goes too.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import orjson

from fsrun.adapters import child
from fsrun.adapters.evaluation import EvaluationError, Request, SkipEvaluation, result_of
from fsrun.core import codec
from fsrun.run.descriptors import follow

TRACEBACK_LIMIT = 20_000


def load(spec: str) -> Callable[..., object]:
    """Return what ``FILE.py:NAME`` or ``package.module:NAME`` names; an ``EvaluationError`` says what is wrong."""
    source, colon, name = spec.rpartition(":")
    if not colon or not source or not name:
        raise EvaluationError(f"{spec!r} names no function: write FILE.py:NAME")
    if source.endswith(".py"):
        path = os.path.abspath(source)
        if not os.path.isfile(path):
            raise EvaluationError(f"{path}: no such file")
        sys.path.insert(0, os.path.dirname(path))
        module_spec = importlib.util.spec_from_file_location(os.path.basename(path)[: -len(".py")], path)
        if module_spec is None or module_spec.loader is None:
            raise EvaluationError(f"{path}: not a Python module")
        module = importlib.util.module_from_spec(module_spec)
        sys.modules[module_spec.name] = module
        module_spec.loader.exec_module(module)
    else:
        sys.path.insert(0, os.getcwd())
        module = importlib.import_module(source)
    function = getattr(module, name, None)
    if not callable(function):
        raise EvaluationError(f"{source} has no function {name!r}")
    return function  # type: ignore[no-any-return]


def takes_context(function: Callable[..., object]) -> bool:
    """Whether the function wants the request as a second argument."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
    return len(places) >= 2 or any(p.kind is p.VAR_POSITIONAL for p in parameters)


def describe(error: BaseException) -> dict[str, str]:
    """An exception as an outcome keeps it: type, message, traceback (the end of it where it is long).

    The traceback begins in the user's code: the frames that led there are ours and the import system's.
    """
    frames = error.__traceback__
    while frames is not None and _is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames))
    return {"type": type(error).__name__, "message": _text(error), "traceback": text[-TRACEBACK_LIMIT:]}


def _is_ours(file: str) -> bool:
    return file == __file__ or file.startswith("<frozen importlib")


def _text(error: BaseException) -> str:
    try:
        return str(error)[:2000]
    except Exception:  # noqa: BLE001 - a __str__ of the user's
        return "(its text cannot be shown)"


def call(function: Callable[..., object], request: Request) -> dict[str, Any]:
    """Run the function on one request; the answer says scores, skip or error."""
    try:
        arguments = (request.path, request) if takes_context(function) else (request.path,)
        returned = function(*arguments)
        if inspect.isawaitable(returned):
            returned = asyncio.run(_wait(returned))
        result = result_of(returned)
    except EvaluationError as error:
        return {"error": error.error, "reason": error.reason}
    except SystemExit as error:
        return {"error": describe(error), "reason": f"the evaluation called sys.exit({error.code!r})"}
    except BaseException as error:  # noqa: BLE001 - whatever user code raises is its outcome
        if _is_skip(error):
            return {"skip": _text(error) or "skipped by the evaluation"}
        return {"error": describe(error), "reason": f"{type(error).__name__}: {_text(error)}"[:500]}
    return {"scores": result.scores, "details": result.details, "samples": result.samples}


def _is_skip(error: BaseException) -> bool:
    """``fsrun.Skip``, one that is derived from it, or a class of the user's own that is called so."""
    return isinstance(error, SkipEvaluation) or any(kind.__name__ == "Skip" for kind in type(error).__mro__)


async def _wait(awaitable: Any) -> object:
    return await awaitable


def _requests(descriptor: int, out: queue.SimpleQueue[bytes]) -> None:
    with os.fdopen(descriptor, "rb") as source:
        for line in source:
            out.put(line)
    os._exit(0)


def main(spec: str, read: int, write: int) -> None:
    """Answer requests until the parent closes its end."""
    child.die_with_parent()
    home = os.getcwd()
    incoming: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_requests, args=(read, incoming), daemon=True).start()
    os.set_inheritable(write, False)
    try:
        function = load(spec)
        answer: dict[str, Any] = {"ready": True}
    except BaseException as error:  # noqa: BLE001 - importing user code may raise anything
        own = isinstance(error, EvaluationError)
        reason = str(error) if own else f"{spec} cannot be loaded: {type(error).__name__}: {_text(error)}"[:500]
        _send(write, {"ready": False, "reason": reason, "error": None if own else describe(error)})
        return
    _send(write, answer)
    while True:
        request = Request(**orjson.loads(incoming.get()))
        follow(os.getppid())
        answer = call(function, request)
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.chdir(home)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                continue
        _send(write, answer)


def _send(descriptor: int, answer: dict[str, Any]) -> None:
    data = memoryview(codec.encode_line(answer))
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
