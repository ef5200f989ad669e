"""Work of one run leaves threads for the others, whatever hangs in it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fsrun.disk.fs import LocalFileSystem
from fsrun.web.app import THREADS
from fsrun.web.site import Site
from fsrun.web.turns import Turns
from support import build
from support.build import RunFolder
from support.fs import FaultFS
from support.programs import PATIENCE, until
from support.viewer import Viewer


def test_those_who_ask_the_same_share_one_piece_of_work() -> None:
    made: list[int] = []
    gate = threading.Event()

    def work() -> int:
        gate.wait(PATIENCE)
        made.append(1)
        return len(made)

    async def all_of_it() -> list[int]:
        with ThreadPoolExecutor(4) as pool:
            turns = Turns(pool)
            asked = [asyncio.ensure_future(turns.share("key", "lane", 1, work)) for _ in range(26)]
            await asyncio.sleep(0)
            gate.set()
            found = await asyncio.gather(*asked)
            assert await turns.share("key", "lane", 1, work) == 2
            await asyncio.sleep(0)
            assert not turns._shared
            return found

    assert asyncio.run(all_of_it()) == [1] * 26


def test_what_fails_fails_for_all_who_asked_and_is_tried_anew() -> None:
    async def all_of_it() -> None:
        with ThreadPoolExecutor(1) as pool:
            turns = Turns(pool)
            asked = [asyncio.ensure_future(turns.share("key", "lane", 1, lambda: 1 // 0)) for _ in range(3)]
            found = await asyncio.gather(*asked, return_exceptions=True)
            assert [type(one) for one in found] == [ZeroDivisionError] * 3
            assert await turns.share("key", "lane", 1, lambda: 5) == 5

    asyncio.run(all_of_it())


def test_who_gives_up_frees_no_thread_that_still_works_and_what_nobody_awaits_is_not_begun() -> None:
    gate, made = threading.Event(), []

    async def all_of_it() -> None:
        with ThreadPoolExecutor(4) as pool:
            turns = Turns(pool)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(turns.share("hangs", "lane", 1, lambda: gate.wait(PATIENCE)), 0.05)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(turns.share("behind", "lane", 1, lambda: made.append(1)), 0.05)
            assert await turns.share("other", "another lane", 1, lambda: 7) == 7
            gate.set()
            assert await turns.share("last", "lane", 1, lambda: 8) == 8
            for _ in range(1000):
                await asyncio.sleep(0)
                if not turns._lanes:
                    break
            assert not turns._lanes

    asyncio.run(all_of_it())
    assert made == []


@pytest.mark.parametrize("tail", ["", "/evals", "/tags", "/series?tag=loss", "/system", "/media", "/console", "/files"])
def test_a_run_that_hangs_leaves_threads_for_other_runs(viewer: Viewer, root: Path, run: RunFolder, tail: str) -> None:
    build.run(root, "other").session("main", 1, build.line(0, loss=0.5))
    fs = FaultFS(LocalFileSystem())
    site = Site(str(root), fs)
    site.catalog.look()
    client = viewer(site=site, limit=PATIENCE)
    gate = fs.hang(match="speech/big")
    mark = "&" if "?" in tail else "?"
    asked = [
        threading.Thread(target=client.get, args=(f"/api/runs/speech/big{tail}{mark}offset={i}",), daemon=True)
        for i in range(THREADS + 6)
    ]
    try:
        for one in asked:
            one.start()
        assert client.get("/api/runs/speech/other/tags").json()["tags"][0]["tag"] == "loss"
        until(lambda: client.get("/api/runs/speech/other/evals").status_code == 200)
    finally:
        gate.set()
        for one in asked:
            one.join(PATIENCE)
