"""Hints of changes in folders: of this host's own, by inotify."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.store import Store
from fsrun.disk.watch import FolderHints


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_folder_watched_for_removals_tells_of_a_publication_and_of_a_close_but_of_no_beat(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []
    hints = FolderHints(lambda folder, name: seen.append((folder, name)), pytest.fail)
    assert hints.start()
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    beat = jobs / "main.1.00000000.beat.0"
    beat.touch()
    assert hints.watch(str(jobs))
    assert hints.watch(str(jobs), removals=True)
    assert hints.count == 1
    for count in range(1, 50):
        beat = beat.rename(jobs / f"main.1.00000000.beat.{count}")
    other = tmp_path / "other"
    other.mkdir()
    assert hints.watch(str(other))
    (other / "later").touch()
    until(lambda: (str(other), "later") in seen)
    assert {folder for folder, _ in seen} == {str(other)}
    assert Store(LocalFileSystem(), str(tmp_path), "main", 1).put_if_absent("jobs", "main.1.end", b"{}\n")
    until(lambda: (str(jobs), "") in seen)
    seen.clear()
    os.unlink(beat)
    until(lambda: (str(jobs), "") in seen)


class SlowObserver:
    """Takes a while to schedule a watch, as where the system is asked for it over a busy disk."""

    def __init__(self) -> None:
        self.scheduled: list[str] = []
        self.first, self.second, self.gate = threading.Event(), threading.Event(), threading.Event()

    def schedule(self, handler: object, folder: str, **options: object) -> object:
        self.scheduled.append(folder)
        (self.second if self.first.is_set() else self.first).set()
        assert self.gate.wait(60)
        return object()

    def unschedule(self, watch: object) -> None:
        self.scheduled.pop()


@pytest.mark.parametrize("then", ["watch", "forget"])
def test_two_threads_that_change_what_is_watched_come_one_after_the_other(tmp_path: Path, then: str) -> None:
    hints = FolderHints(lambda folder, name: None, pytest.fail)
    observer = hints._observer = SlowObserver()
    calls = [hints.watch, getattr(hints, then)]
    threads = [threading.Thread(target=call, args=(str(tmp_path),)) for call in calls]
    threads[0].start()
    assert observer.first.wait(60)
    threads[1].start()
    threads[1].join(0.2)
    observer.second.wait(0.2)
    observer.gate.set()
    for thread in threads:
        thread.join(60)
    assert observer.scheduled == ([str(tmp_path)] if then == "watch" else [])
    assert hints.count == len(observer.scheduled)
