"""Rows about evaluation over HTTP: what ``measure`` adds to a bare client that sends the same requests.

The engine is a stand-in in a process of its own, which answers after a time that only a fast engine would need; a real
one is slower, and the share smaller. The bare client has its token ids ready, and reads of an answer only its text.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from rows import Row, Settings

TESTS = Path(__file__).parents[2] / "tests"
CONCURRENCY = 64
DELAY = 0.1
WORDS = 200


def measure(settings: Settings) -> list[Row]:
    sys.path.insert(0, str(TESTS))
    prompts = settings.points(2000)
    path = settings.folder / "prompts.jsonl"
    write_set(path, prompts)
    taken: dict[str, list[tuple[float, float]]] = {"fsrun": [], "aiohttp": []}
    with engine() as url:
        for turn in range(settings.rounds + 1):
            for name, work in (("fsrun", _fsrun), ("aiohttp", _bare)):
                seconds, processor = asyncio.run(work(url, path))
                if turn:  # the first warms up
                    taken[name].append((seconds, processor))
    wall = {name: median(seconds for seconds, _ in rows) for name, rows in taken.items()}
    ratio = median(ours[0] / bare[0] for ours, bare in zip(taken["fsrun"], taken["aiohttp"], strict=True))
    processor = {name: median(each for _, each in rows) / prompts * 1e6 for name, rows in taken.items()}
    return [
        Row(
            "eval",
            "prompts through `measure`, over a bare aiohttp client",
            (ratio - 1) * 100,
            "%",
            10.0,
            note=f"{prompts} prompts, {CONCURRENCY} at a time, {DELAY * 1000:.0f} ms an answer: "
            f"{wall['fsrun']:.2f} s and {wall['aiohttp']:.2f} s",
        ),
        Row(
            "eval",
            "processor time a prompt: rendered, sent, graded, counted, kept",
            processor["fsrun"],
            "us",
            note=f"bare aiohttp client: {processor['aiohttp']:.0f} us",
        ),
    ]


def write_set(path: Path, prompts: int) -> None:
    import orjson

    rows = [{"question": f"What is {i} plus {i % 97}? " * 8, "answer": f"#### {i + i % 97}"} for i in range(prompts)]
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))


@contextmanager
def engine(delay: float = DELAY) -> Iterator[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(TESTS),
        "STANDIN_WORDS": str(WORDS),
        "STANDIN_DELAY": str(delay),
    }
    command = [sys.executable, "-m", "support.standin"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.communicate("", timeout=30)


async def _fsrun(url: str, path: Path) -> tuple[float, float]:
    from fsrun.adapters.generation import HttpTarget
    from fsrun.adapters.measure import measure as run
    from fsrun.adapters.plan import EvalPlan, SetPlan
    from fsrun.adapters.tokens import Tokens
    from support.toymodel import tokenizer

    tokens = Tokens(tokenizer(), str(path.parent), "0123456789abcdef")
    one = SetPlan("bench", str(path), "numeric", "question", "answer", max_tokens=1024)
    plan = EvalPlan((one,), concurrency=CONCURRENCY)
    began, processor = time.perf_counter(), time.process_time()
    async with HttpTarget([url], concurrency=CONCURRENCY) as target:
        await run(plan, target, tokens)
    return time.perf_counter() - began, time.process_time() - processor


async def _bare(url: str, path: Path) -> tuple[float, float]:
    import aiohttp
    import orjson

    from support.toymodel import TEMPLATE, tokenizer

    encode = tokenizer()
    asked = [
        encode(TEMPLATE.split("{%")[0] + orjson.loads(line)["question"])["input_ids"]
        for line in path.read_bytes().splitlines()
    ]
    sampling = {"temperature": 0.0, "top_p": 1.0, "top_k": -1, "max_new_tokens": 1024}
    texts = []
    began, processor = time.perf_counter(), time.process_time()
    waiting = iter(asked)

    async def work(session: aiohttp.ClientSession) -> None:
        for ids in waiting:
            body = orjson.dumps({"input_ids": ids, "sampling_params": sampling})
            headers = {"Content-Type": "application/json"}
            async with session.post(f"{url}/generate", data=body, headers=headers) as response:
                texts.append(orjson.loads(await response.read())["text"])

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONCURRENCY)) as session:
        await asyncio.gather(*(work(session) for _ in range(CONCURRENCY)))
    assert len(texts) == len(asked)
    return time.perf_counter() - began, time.process_time() - processor
