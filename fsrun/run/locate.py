"""Find the folder of a run from what a person types: a path, ``project/run``, or an id (protocol.md 2, 3).

Library and commands find runs this way alike. Reads listings only; ``run.create`` decides where a new run goes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from fsrun.core import ids
from fsrun.core.errors import NotFoundError, UsageError
from fsrun.disk.fs import FileSystem, LocalFileSystem
from fsrun.run.listing import started
from fsrun.run.roots import ROOT_VARIABLE, list_jobs, resolve_root

LATEST = "latest"
"""Stands for the newest run where no run has that id."""


def resolve_run(
    run: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    *,
    fs: FileSystem | None = None,
    environ: Mapping[str, str] | None = None,
) -> str:
    """Return the absolute path of a run's folder.

    ``run``: a path of a run, ``project/run``, or a run's id; the last two under ``root``, else $FSRUN_ROOT, else
    ``./runs``. A path that is a run wins. Raises ``NotFoundError`` naming the root that was searched, and
    ``UsageError`` naming all where an id stands for several runs.
    """
    fs = fs or LocalFileSystem()
    text = os.fspath(run)
    if not text:
        raise UsageError("no run was named: give its path, project/run, or its id")
    path = os.path.abspath(os.path.expanduser(text))
    if _is_run(fs, path):
        return path
    top = resolve_root(root, environ)
    found = list(dict.fromkeys(_under(fs, top, text)))
    if not found:
        raise NotFoundError(
            f"no run {text!r} under {top}; give its path, or the root by --root (root=) or ${ROOT_VARIABLE}"
        )
    if len(found) > 1:
        raise UsageError(f"{text!r} names several runs: {', '.join(found)}; give project/run or a path")
    return found[0]


def guess_run(
    run: str,
    root: str | None = None,
    *,
    fs: FileSystem | None = None,
    environ: Mapping[str, str] | None = None,
) -> str | None:
    """The run whose id begins so, or ``latest``: for people, where ``resolve_run`` has found none. None: none either.

    ``latest`` is the run whose first session was opened last, ``project/latest`` that of a project. Raises
    ``UsageError`` where the ids of several runs begin so.
    """
    fs = fs or LocalFileSystem()
    project, slash, name = run.strip("/").partition("/")
    wanted = name if slash else project
    if not wanted or "/" in wanted or run.startswith(("/", ".", "~")):
        return None
    paths = list(_all_below(fs, resolve_root(root, environ), ids.portable(project) if slash else None))
    if wanted == LATEST:
        return max(paths, key=lambda path: (started(fs, path) or "", path), default=None)
    paths = sorted(path for path in paths if path.rpartition("/")[2].startswith(wanted))
    if len(paths) > 1:
        shown = ", ".join(paths[:5]) + (", ..." if len(paths) > 5 else "")
        raise UsageError(f"the ids of several runs begin with {run!r}: {shown}")
    return paths[0] if paths else None


def _all_below(fs: FileSystem, root: str, project: str | None) -> Iterator[str]:
    """Paths of the runs below a root, or of one project of it."""
    for top in _names(fs, root):
        if top.startswith(".") or project not in (None, top):
            continue
        for name in _names(fs, f"{root}/{top}"):
            if not name.startswith(".") and _is_run(fs, f"{root}/{top}/{name}"):
                yield f"{root}/{top}/{name}"


def _under(fs: FileSystem, root: str, text: str) -> Iterator[str]:
    """Runs below a root that the text may mean. No name is looked up that a listing has not shown."""
    project, slash, run = text.strip("/").partition("/")
    tops = _names(fs, root)
    if slash and run and ids.portable(project) in tops:
        yield from _run_in(fs, f"{root}/{ids.portable(project)}", run)
    for top in tops:
        if not top.startswith("."):
            yield from _run_in(fs, f"{root}/{top}", text)


def _run_in(fs: FileSystem, folder: str, run: str) -> Iterator[str]:
    name = ids.portable(run)
    if name in _names(fs, folder) and _is_run(fs, f"{folder}/{name}"):
        yield f"{folder}/{name}"


def _is_run(fs: FileSystem, path: str) -> bool:
    try:
        return list_jobs(fs, path) is not None
    except OSError:
        return False


def _names(fs: FileSystem, folder: str) -> list[str]:
    try:
        return fs.names(folder)
    except OSError:
        return []
