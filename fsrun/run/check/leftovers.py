"""Checks of what stopped processes left: temporaries, trash (protocol.md 5.7, 7)."""

from __future__ import annotations

from fsrun.core import layout
from fsrun.disk.fs import NO_FILE
from fsrun.disk.store import Store
from fsrun.run.check.finding import Fix, Picture
from fsrun.run.check.repair import remove_temporary

_IN_RUN = ("", layout.JOBS, layout.SCALARS, layout.EVALS, layout.FILES, layout.MEDIA, layout.TABLES, layout.ARTIFACTS)


def check_leftovers(picture: Picture, unit: Store | None) -> None:
    """Name temporaries and trash. Those of a session that may be alive are its own affair and are not named."""
    roots = {picture.path: picture.store} | ({unit.root: unit} if unit is not None else {})
    for root, store in roots.items():
        there = set(store.names(""))
        for folder in dict.fromkeys((*_IN_RUN, *layout.UNIT_FOLDERS)):
            if folder and (folder not in there or not _is_folder(picture, store, folder)):
                continue
            for name in sorted(there if not folder else store.names(folder)):
                _check_name(picture, root, folder, name)


def _is_folder(picture: Picture, store: Store, folder: str) -> bool:
    """Whether a folder of the layout is one; what cannot be asked is left to who lists it."""
    try:
        is_folder = store.fs.stat(store.path(folder)).is_folder
        what = "is a file"
    except FileNotFoundError:
        is_folder, what = False, "leads nowhere"
    except OSError as error:
        is_folder, what = error.errno not in NO_FILE, f"cannot be opened: {error.strerror}"
    if not is_folder:
        shown = folder if store.root == picture.path else store.path(folder)
        picture.report("error", shown, "2", f"is no folder: {what}", "remove it, or restore the folder from a copy")
    return is_folder


def _check_name(picture: Picture, root: str, folder: str, name: str) -> None:
    file = f"{folder}/{name}" if folder else name
    shown = file if root == picture.path else f"{root}/{file}"
    fix = Fix(3, "remove it", lambda: remove_temporary(picture, root, file))
    if folder == layout.TRASH:
        message = "is on its way out, and whoever put it here did not remove it"
        picture.report("warning", shown, "5.7", message, "fsrun check --fix", fix=fix)
    elif layout.is_temp(name):
        owner = layout.parse_temp_name(name)
        if owner is not None and picture.proved_dead(*owner):
            message = f"was never published: session {owner[1]} of job {owner[0]} is gone"
            picture.report("warning", shown, "7", message, "fsrun check --fix", fix=fix)
        elif owner is None or picture.is_closed(*owner) or not picture.was_opened(*owner):
            message = "was never published; that its process is gone cannot be proved from this host"
            picture.report("note", shown, "7", message, "fsrun check --fix on the host that made it; it does no harm")
