"""The runner of docs/clients.md: it passes the client of fsrun's own library, and finds each fault of a broken one."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.conformance
ROOT = Path(__file__).parents[2]
CLIENT = shlex.join([sys.executable, str(ROOT / "tools/conformance/python_client.py")])
BROKEN = str(ROOT / "tests/conformance/broken.py")
QUICK = ("drive:open", "drive:log", "drive:fenced", "drive:evaluate", "drive:names-used-again", "read:valid/minimal")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools/conformance"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def only(*names: str) -> list[str]:
    return [word for name in names for word in ("--only", name)]


def results(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    assert done.stdout, done.stderr
    return {result["check"]: result for result in json.loads(done.stdout)["results"]}


def test_the_client_of_the_library_passes() -> None:
    done = run("--client", CLIENT, "--json", *only(*QUICK))
    assert {name: result["what"] for name, result in results(done).items()} == dict.fromkeys(QUICK, "")
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("fault", "check", "words", "rule"),
    [
        ("logs-without-a-newline", "drive:log", "the log holds []", "6.8"),
        ("answers-before-it-is-written", "drive:log", "the log holds", "6.8"),
        ("moves-without-an-outcome", "drive:fails", "x_1.pt.1.json is missing", "5.3"),
        ("opens-while-held", "drive:held-elsewhere", "expected 'held node7 4711'", "4.4"),
        ("proves-by-the-name-of-the-host", "drive:held-here", "so that its pid proves nothing", "4.4"),
        ("samples-in-the-order-of-the-file", "drive:large", "is ('failed', 'changed')", "6.4"),
        ("writes-an-entry-in-place", "drive:finished", "was written under its true name", "9, 4; 5.1, 5.6"),
        ("closes-too-early", "drive:take-over-expired", "although T is 3 s", "4.4"),
        ("never-beats", "drive:beats-alone", "the beat stood still", "4.2"),
        ("reads-past-a-fence", "read:valid/zombie_past_the_fence", "points.", None),
        ("tidies-while-it-reads", "read:valid/just_opened", "read has changed the run folder", "8.1"),
        ("writes-when-fenced", "drive:zombie", "after it was taken over", "4.6"),
        ("replaces-an-outcome", "drive:outcome-stands", "expected 'moved retry'", "5.3"),
        ("keeps-a-link", "drive:linked", "best/ holds", "5.6"),
        ("marks-behind-the-suffix", "drive:names-used-again", "expected 'enqueued epoch_1~2.pt'", "5.1"),
        ("writes-under-any-version", "drive:other-version", "expected 'refused'", "10"),
        ("makes-a-moved-run-anew", "drive:moved", "was made anew", "4.1"),
        ("leaves-a-temporary", "drive:close-failed", "temporaries are left", "7"),
        ("closes-nothing-at-the-end-of-the-input", "drive:input-ended", "main.1.end is missing", "4.3"),
        ("names-nobody-when-held", "drive:held", "expected 'held", "4.4"),
    ],
)
def test_a_client_with_a_fault_is_found_out(fault: str, check: str, words: str, rule: str | None) -> None:
    done = run("--client", shlex.join([sys.executable, BROKEN, fault]), "--json", *only(check))
    result = results(done)[check]
    assert not result["passed"], f"{check} passes a client that {fault}"
    assert words in result["what"].replace('"', "'")
    assert rule is None or result["rule"] == rule
    assert done.returncode == 1


def test_what_is_expected_to_fail_has_to_fail(tmp_path: Path) -> None:
    listed = tmp_path / "list"
    listed.write_text("# what it cannot do\ndrive:beat it has no heart\n")
    done = run("--client", CLIENT, "--expected", str(listed), *only("drive:beat"))
    assert "passes now, take it out" in done.stdout
    assert done.returncode == 1
    broken = shlex.join([sys.executable, BROKEN, "names-nobody-when-held"])
    listed.write_text("drive:held it names nobody\n")
    done = run("--client", broken, "--expected", str(listed), *only("drive:held"))
    assert "expected failure  drive:held" in done.stdout, done.stdout
    assert done.returncode == 0


def test_a_list_that_names_no_check_is_an_error(tmp_path: Path) -> None:
    listed = tmp_path / "list"
    listed.write_text("drive:no-such-check it was renamed\n")
    done = run("--client", CLIENT, "--expected", str(listed), *only("drive:beat"))
    assert done.returncode == 2
    assert "drive:no-such-check" in done.stderr


def test_the_list_beside_the_client_is_used(tmp_path: Path) -> None:
    client = tmp_path / "client"
    client.write_text("#!/bin/sh\nexit 1\n")
    client.chmod(0o755)
    (tmp_path / "client.expected").write_text("read:valid/minimal it reads nothing\n")
    done = run("--client", str(client), *only("read:valid/minimal", "read:valid/words"))
    assert "expected failure  read:valid/minimal" in done.stdout
    assert "FAILED  read:valid/words" in done.stdout
    assert done.returncode == 1


def test_every_check_is_listed_with_what_it_is_about() -> None:
    lines = run("--list").stdout.splitlines()
    assert len(lines) == len({line.split()[0] for line in lines}) > 50
    assert [line for line in lines if len(line.split()) < 2] == []
    assert {line.partition(":")[0] for line in lines} == {"read", "drive", "python", "kill"}


def test_a_pattern_that_names_no_check_is_an_error() -> None:
    done = run("--client", CLIENT, *only("drive:no-such-thing"))
    assert done.returncode == 2
    assert "--list" in done.stderr


def test_a_client_that_is_no_program_is_an_error() -> None:
    done = run("--client", "/no/such/client", *only("drive:beat"))
    assert done.returncode == 2
    assert "no program /no/such/client" in done.stderr


def test_a_client_without_a_reader_takes_the_checks_of_a_trainer(tmp_path: Path) -> None:
    client = tmp_path / "client"
    client.write_text(f'#!/bin/sh\n[ "$1" = drive ] || exit 2\nexec {CLIENT} "$@"\n')
    client.chmod(0o755)
    found = results(run("--client", str(client), "--json", *only("drive:log", "read:valid/minimal")))
    assert found["drive:log"]["what"] == ""
    assert "the client has no read" in found["read:valid/minimal"]["what"]
