"""Hints that something changed in a folder: never truth, and only of what this host itself did (watchdog, inotify).

Whoever gets one looks afresh. Where hints cannot be had (no inotify, out of watches, another kind of system) nothing is
lost but time. Leaves to others: which folders are worth one of a limited number of watches.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent

MAX_FOLDERS = 64
"""Each watched folder costs a thread."""


class FolderHints:
    """Watches some folders, not what is below them; calls ``on_change(folder, name)`` from a thread of its own.

    ``name`` is new there; it is empty where the folder is watched for removals alone, and one happened.
    """

    def __init__(self, on_change: Callable[[str, str], None], on_note: Callable[[str], None]) -> None:
        self._on_change = on_change
        self._on_note = on_note
        self._changes = threading.RLock()
        """Held while what is watched changes: a sweep, markers and hints do so from threads of their own."""
        self._watches: dict[str, tuple[Any, bool]] = {}
        """By folder: watchdog's watch, and whether it is for removals alone."""
        self._observer: Any = None
        self._broken = False
        self._seen: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()

    def start(self) -> bool:
        """Start to watch; False (and a note) where this system gives no hints."""
        try:
            from watchdog.observers import Observer

            self._observer = Observer()
            self._observer.start()
            threading.Thread(target=self._tell, name="fsrun-hints", daemon=True).start()
        except Exception as error:  # noqa: BLE001 - watchdog raises what its system gives it; hints can be done without
            self._give_up(f"no hints of changes ({error}): new runs are found by markers and sweeps")
        return not self._broken

    def watch(self, folder: str, *, removals: bool = False) -> bool:
        """Watch a folder; False where that cannot be: it is looked at less often then.

        ``removals``: for these alone, so that a name which is renamed all the time costs nothing.
        """
        with self._changes:
            return self._watch(folder, removals)

    def _watch(self, folder: str, removals: bool) -> bool:
        if self._broken or self._observer is None:
            return False
        if folder in self._watches:
            if self._watches[folder][1] == removals:
                return True
            self.forget(folder)
        if len(self._watches) >= MAX_FOLDERS:
            return False
        try:
            handler, events = _handler(self._changed, removals)
            watch = self._observer.schedule(handler, folder, recursive=False, event_filter=events)
            self._watches[folder] = watch, removals
        except FileNotFoundError:
            return False
        except Exception as error:  # noqa: BLE001 - see start
            if isinstance(error, PermissionError | NotADirectoryError):
                return False
            self._give_up(f"no further hints of changes ({error}): what is not watched is found by markers and sweeps")
            return False
        return True

    def forget(self, folder: str) -> None:
        """Watch a folder no longer."""
        with self._changes:
            watched = self._watches.pop(folder, None)
            if watched is not None:
                with suppress(Exception):  # its folder may be gone, and the watch with it
                    self._observer.unschedule(watched[0])

    @property
    def count(self) -> int:
        """How many folders are watched."""
        return len(self._watches)

    def _give_up(self, note: str) -> None:
        self._broken = True
        self._on_note(note)

    def _changed(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        self._seen.put((folder, name))

    def _tell(self) -> None:
        """Pass on what was seen: not from watchdog's thread, which holds a lock that ``watch`` needs."""
        while True:
            self._on_change(*self._seen.get())


def _handler(changed: Callable[[str], None], removals: bool) -> tuple[Any, list[type[FileSystemEvent]]]:
    """What takes the events, and the kinds of these: the others would cost a thread's turn each."""
    from watchdog.events import (
        DirCreatedEvent,
        DirMovedEvent,
        FileCreatedEvent,
        FileDeletedEvent,
        FileMovedEvent,
        FileSystemEventHandler,
    )

    class Handler(FileSystemEventHandler):
        def on_created(self, event: FileSystemEvent) -> None:
            changed(os.fsdecode(event.src_path))

        def on_moved(self, event: FileSystemEvent) -> None:
            changed(os.fsdecode(event.dest_path))

        def on_deleted(self, event: FileSystemEvent) -> None:
            changed(f"{os.path.dirname(os.fsdecode(event.src_path))}/")

    # Not creations where removals are wanted: watchdog has the system tell of every rename with them.
    new: list[type[FileSystemEvent]] = [FileCreatedEvent, DirCreatedEvent, FileMovedEvent, DirMovedEvent]
    return Handler(), [FileDeletedEvent] if removals else new
