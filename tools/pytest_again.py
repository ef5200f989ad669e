"""Runs pytest, and what failed once more, alone: ``python tools/pytest_again.py FILE ARGUMENTS...`` (those of pytest).

A test that fails among others on a busy machine and passes alone is a fault of the test, or a rare one of the code:
it must be mended, but tells nothing about the change that is checked. So it does not count as failed; it is named here
and in a line of FILE, which whoever calls prints at the end. What fails again counts. Where more than a few fail, or
pytest did not run to its end, nothing is run again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

FEW = 25
SOME_FAILED = 1
"""What pytest returns where it ran to its end and tests failed."""


def failed_in(cache: str) -> set[str]:
    """The tests that failed in the last run with this cache."""
    path = Path(cache, "v", "cache", "lastfailed")
    return set(json.loads(path.read_text())) if path.exists() else set()


def run(cache: str, arguments: list[str]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *arguments]).returncode


def main(names: Path, arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as cache:
        code = run(cache, arguments)
        first = failed_in(cache)
        if code != SOME_FAILED or not 0 < len(first) <= FEW:
            return code
        print(f"\n== once more, alone: {len(first)} failed", flush=True)
        alone = [a for a in arguments if not a.startswith("--junitxml")]
        again = run(cache, [*alone, "-n", "1", "--last-failed", "--last-failed-no-failures", "none"])
        second = failed_in(cache)
    for name in sorted(first & second):
        print(f"failed again, alone: {name}")
    if again not in (0, SOME_FAILED):
        print(f"the second run did not come to its end ({again})")
        return code
    for name in sorted(first - second):
        print(f"failed under load, passed alone: {name}")
    with names.open("a") as file:
        file.writelines(f"{name}\n" for name in sorted(first - second))
    return SOME_FAILED if second else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
