"""Checks any client of protocol.md: drives it by docs/clients.md, judges the files it leaves and what it prints.

    .venv/bin/python tools/conformance --client "node tools/clients/fsrun.mjs"
    .venv/bin/python tools/conformance --client CMD --only 'drive:*' --only 'read:valid/*'
    .venv/bin/python tools/conformance --list
    .venv/bin/python tools/conformance --client CMD --against CMD --seed 7 --json

Ends with 0 where every check passes, but those that the client's list of expected failures names, which have to fail.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import evaluating  # noqa: F401 - registers its scenarios
import killed  # noqa: F401
import mixed  # noqa: F401
import queueing  # noqa: F401
import taking_over  # noqa: F401
import training  # noqa: F401
import vectors
from driven import Failure, expect
from stage import CHECKS, PYTHON, Check, Stage, read

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Result:
    """How one check went."""

    check: str
    passed: bool
    seconds: float
    what: str = ""
    where: str = ""
    rule: str = ""
    reason: str = ""
    """Why its failure is expected; empty where it is not."""

    @property
    def good(self) -> bool:
        """Whether it went as expected."""
        return self.passed != bool(self.reason)

    def __str__(self) -> str:
        name = f"{self.check} ({self.seconds:.1f} s)"
        if self.passed:
            return f"passes now, take it out  {name}: listed with {self.reason!r}" if self.reason else f"ok      {name}"
        if self.reason:
            return f"expected failure  {name}: {self.reason}"
        return f"FAILED  {name}: {self.fault}"

    @property
    def fault(self) -> str:
        """What is wrong, where, and by which rule."""
        rule = f"protocol.md {self.rule}" if self.rule else "docs/clients.md"
        return f"{self.what} ({f'{self.where}; ' if self.where else ''}{rule})"


def reading_checks(folder: Path) -> Iterator[Check]:
    """A check a vector: the client's reading is the one that is expected."""
    for vector in vectors.find(folder):

        def run(stage: Stage, vector: vectors.Vector = vector) -> None:
            expected = vector.expected
            run = vector.copy(stage.place)
            stage.unfit = True
            differences = vectors.differences(expected["reading"], read(stage.words, run, stage.environ, alone=True))
            expect(not differences, "; ".join(differences[:6]), ", ".join(expected.get("rules", ())), vector.folder)

        yield Check(f"read:{vector.name}", str(vector.expected.get("about", "")), run)


def expected_failures(words: Sequence[str], given: str | None) -> dict[str, str]:
    """The list of expected failures: the one given, else the one beside the client's file. Check -> reason."""
    beside = (f"{word}.expected" for word in words if Path(word).is_file())
    path = given or next((name for name in beside if Path(name).is_file()), None)
    found: dict[str, str] = {}
    for line in Path(path).read_text("utf-8").splitlines() if path else ():
        check, _, reason = line.strip().partition(" ")
        if check and not check.startswith("#"):
            found[check] = reason.strip() or "no reason is given"
    return found


def perform(check: Check, words: Sequence[str], against: Sequence[str], seed: int, reason: str) -> Result:
    """Run one check in a folder of its own."""
    began = time.monotonic()
    place = Path(tempfile.mkdtemp(prefix="conformance-"))
    stage = Stage(place, words, against, f"{seed} {check.name}")
    failure: Failure | None = None
    try:
        check.run(stage)
        stage.settle()
    except Failure as error:
        failure = error
    except Exception as error:  # Files of a client may be anything.
        failure = Failure(f"the files cannot be judged: {type(error).__name__}: {error}")
    finally:
        stage.clear()
        shutil.rmtree(place, ignore_errors=True)
    seconds = round(time.monotonic() - began, 2)
    if failure is None:
        return Result(check.name, True, seconds, reason=reason)
    return Result(check.name, False, seconds, failure.what, failure.where, failure.rule, reason)


def perform_all(args: argparse.Namespace, checks: Sequence[Check], words: list[str]) -> list[Result]:
    """Run the checks side by side; prints a line as each is done."""
    expected = expected_failures(words, args.expected)
    against = shlex.split(args.against) if args.against else [sys.executable, str(PYTHON)]
    results: list[Result] = []
    said: Counter[str] = Counter()
    with ThreadPoolExecutor(args.jobs) as pool:
        # The long ones first: a scenario of many rounds that begins last is waited for by all the others.
        in_order = sorted(checks, key=lambda check: not check.name.startswith(("kill:", "python:")))
        futures = [pool.submit(perform, c, words, against, args.seed, expected.get(c.name, "")) for c in in_order]
        for future in as_completed(futures):
            results.append(future.result())
            last = results[-1]
            shown = not args.json
            if not last.passed and not last.reason:  # One fault of all checks is one line.
                shown = shown and not said[last.what]
                said[last.what] += 1
            if shown:
                print(last, flush=True)
    for what, count in said.items():
        if count > 1 and not args.json:
            print(f"FAILED  {count} checks in all with: {what}")
    return results


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="tools/conformance", description=__doc__.splitlines()[0])
    parser.add_argument("--client", metavar="CMD", help="the command of the client, in one word as for a shell")
    parser.add_argument("--against", metavar="CMD", help="the client of the other side (fsrun's own library)")
    parser.add_argument("--only", metavar="PATTERN", action="append", help="of these checks alone: 'drive:*'")
    parser.add_argument("--list", action="store_true", help="print the names of the checks, and what each is about")
    parser.add_argument(
        "--expected", metavar="FILE", help="the expected failures (CLIENTFILE.expected, if it is there)"
    )
    parser.add_argument("--vectors", metavar="DIR", type=Path, default=vectors.FOLDER, help="where the vectors stand")
    parser.add_argument("--seed", type=int, default=1, help="of the moments at which clients are killed (1)")
    parser.add_argument("--jobs", type=int, default=4, help="checks at a time (4)")
    parser.add_argument("--json", action="store_true", help="for programs")
    args = parser.parse_args(argv)
    if not args.list and not args.client:
        parser.error("--client CMD is missing")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Run the checks that were asked for."""
    args = parse(sys.argv[1:] if argv is None else argv)
    checks = every = [*reading_checks(args.vectors), *CHECKS.values()]
    if args.only:
        checks = [c for c in checks if any(fnmatchcase(c.name, pattern) for pattern in args.only)]
    if args.list:
        for check in checks:
            print(f"{check.name}  {check.about}")
        return 0
    if not checks:
        print("no check has such a name; --list prints them all", file=sys.stderr)
        return 2
    began = time.monotonic()
    words = shlex.split(args.client)
    unknown = expected_failures(words, args.expected).keys() - {check.name for check in every}
    if unknown:
        print(f"the list of expected failures names no check: {' '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    for program in (words[0], *shlex.split(args.against or "")[:1]):
        if shutil.which(program) is None:
            print(
                f"there is no program {program} to start: --client takes a command (docs/clients.md)", file=sys.stderr
            )
            return 2
    results = perform_all(args, checks, words)
    bad = [result for result in results if not result.good]
    if args.json:
        print(json.dumps({"client": args.client, "results": [asdict(r) | {"good": r.good} for r in results]}))
    else:
        listed = " ".join(sorted(r.check for r in bad)[:20]) + (" ..." if len(bad) > 20 else "")
        failed = f", {len(bad)} not as expected: {listed}" if bad else ""
        print(f"{len(results)} checks in {time.monotonic() - began:.0f} s, seed {args.seed}{failed}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
