"""10,000 prompts, 512 at a time: all are answered, and the memory they take does not grow with their number."""

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from support.words import write_set

TESTS = Path(__file__).parents[1]
PROGRAM = """
import asyncio, ctypes, gc, json, resource, sys
sys.path.insert(0, sys.argv[1])
from support.words import WordGrader, plan_of, tokens
from fsrun.adapters.generation import HttpTarget
from fsrun.adapters.measure import measure

def now():
    # What was freed and not given back yet is none of what is held.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

seen = {}
def progress(p):
    if p.done in (2000, p.total):
        seen[p.done] = now()

async def main(url, path):
    plan = plan_of(path, max_tokens=4096, shared={"concurrency": 512, "keep_samples": 100})
    async with HttpTarget([url], concurrency=512) as target:
        found = await measure(plan, target, tokens(), progress=progress, graders=WordGrader())
    print(json.dumps({"scores": found.scores, "seen": seen, "kept": found.samples.num_rows}))

asyncio.run(main(sys.argv[2], sys.argv[3]))
"""


@pytest.mark.timeout(400)
def test_ten_thousand_prompts_at_a_concurrency_of_512_take_bounded_memory(tmp_path: Path) -> None:
    path = write_set(tmp_path / "set.jsonl", [(f"what is {i} + 1 " * 10, "42") for i in range(10_000)])
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "STANDIN_WORDS": "2000", "STANDIN_TOGETHER": "512"}
    command = [sys.executable, "-m", "support.standin"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(TESTS), url, str(path)], capture_output=True, text=True, timeout=300
        )
        said = server.communicate("", timeout=120)[0]

    assert ran.returncode == 0, ran.stderr
    found = orjson.loads(ran.stdout)
    assert found["scores"]["eval/sums"] == 1.0
    assert found["kept"] == 100
    early, late = found["seen"]["2000"], found["seen"]["10000"]
    # 8,000 answers of 10 KB, and their bodies on the way, were 80 MB or more, were they kept.
    assert late - early < 40 << 20
    asked, most, connections = map(int, said.split())
    assert asked == 10_000
    assert most == 512
    # They are used again. On a loaded machine the server closes some that rest, and new ones take their place.
    assert connections <= 1024
