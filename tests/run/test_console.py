"""The parts that record a console: the log, descriptors, the notebook's stream; and what happens to the session."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsrun.run import consolelog
from fsrun.run.consolelog import ConsoleLog
from fsrun.run.descriptors import Channel, Held, identify, open_channels
from fsrun.run.notebook import Forwarding, is_notebook
from tests.support.fs import FaultFS
from tests.support.programs import run_program, until


class Log:
    """A log below a folder, on a file system that can misbehave."""

    def __init__(self, root: Path, channels: int = 1) -> None:
        self.fs = FaultFS()
        self.root = root
        self.notes: list[str] = []
        self.log = ConsoleLog(self.fs.append, str(root / "1.log"), channels, self.notes.append)

    def text(self, name: str = "1.log") -> str:
        return (self.root / name).read_text() if (self.root / name).exists() else ""

    def end(self) -> str:
        self.log.end()
        assert self.log.wait(90)
        return self.text()


@pytest.fixture
def opened(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_what_is_put_is_written_within_two_seconds_and_at_the_end(opened: Log) -> None:
    opened.log.start()
    until(lambda: (opened.root / "1.log").exists())
    began = time.monotonic()
    opened.log.put(0, b"one\ntwo\nthr")
    until(lambda: opened.text() == "one\ntwo\n")
    assert time.monotonic() - began < 60
    assert opened.end() == "one\ntwo\nthr\n"
    opened.log.put(0, b"too late\n")
    assert opened.text() == "one\ntwo\nthr\n"
    assert opened.notes == []


def test_two_channels_keep_their_lines_apart_and_in_order(tmp_path: Path) -> None:
    opened = Log(tmp_path, channels=2)
    opened.log.put(0, b"out ")
    opened.log.put(1, b"error ")
    opened.log.put(0, b"one\n")
    opened.log.put(1, b"two\n")
    for n in range(10):
        opened.log.put(n % 2, b"%d\n" % n)
    opened.log.start()
    assert opened.end() == "out one\nerror two\n" + "".join(f"{n}\n" for n in range(10))


def test_the_next_session_has_its_own_file(opened: Log) -> None:
    opened.log.start()
    opened.log.put(0, b"one\n")
    until(lambda: opened.text() == "one\n")
    opened.log.move(str(opened.root / "2.log"))
    opened.log.put(0, b"two\n")
    assert (opened.end(), opened.text("2.log")) == ("one\n", "two\n")


def test_a_fenced_job_records_nothing_more(opened: Log) -> None:
    gate = opened.fs.hang("append")
    opened.log.start()
    opened.log.put(0, b"one\n")
    opened.log.stop()
    gate.set()
    assert opened.log.wait(90)
    assert opened.text() == ""


def test_an_error_is_told_and_what_waits_is_written_later(opened: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consolelog, "RETRY", 0.01)
    opened.fs.fail("log.write", error=errno.ENOSPC, times=3)
    opened.log.start()
    opened.log.put(0, b"one\n")
    until(lambda: opened.text() == "one\n")
    opened.fs.fail("log.sync", error=errno.EIO)
    opened.log.put(0, b"two\n")
    assert opened.end() == "one\ntwo\n"
    assert opened.notes == [os.strerror(errno.ENOSPC), os.strerror(errno.EIO)]


def test_a_log_that_cannot_be_closed_or_made_is_told(opened: Log) -> None:
    opened.fs.fail("append", error=errno.EACCES, times=1)
    opened.fs.fail("log.close", error=errno.EDQUOT)
    opened.fs.fail("log.sync", error=errno.EINVAL)
    opened.log.start()
    opened.log.put(0, b"one\n")
    assert opened.end() == "one\n"
    assert opened.notes == [os.strerror(errno.EACCES), os.strerror(errno.EDQUOT)]


def test_what_cannot_be_written_at_the_end_does_not_hold_it_up(opened: Log) -> None:
    opened.fs.fail("log.write", error=errno.ENOSPC, times=10**6)
    opened.log.start()
    opened.log.put(0, b"one\n")
    assert opened.end() == ""


def test_a_gap_is_one_line_that_counts(opened: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consolelog, "ROOM", 1000)
    gate = opened.fs.hang("append")
    opened.log.start()
    for n in range(300):
        opened.log.put(0, b"%09d\n" % n)
    gate.set()
    until(lambda: opened.text().count("\n") == 100)
    opened.log.put(0, b"after\n")
    assert opened.end().splitlines()[100:] == ["[fsrun: 200 lines were not recorded]", "after"]


def test_a_gap_at_the_end_is_marked(opened: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consolelog, "ROOM", 10)
    opened.log.put(0, b"part of a line that does not fit")
    opened.log.start()
    assert opened.end() == "[fsrun: 1 lines were not recorded]\n"


def test_a_log_ends_at_its_limit(opened: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consolelog, "LIMIT", 30)
    opened.log.start()
    opened.log.put(0, b"0123456789\n" * 100)
    until(lambda: "limit" in opened.text())
    opened.log.put(0, b"more\n")
    text = opened.end()
    assert text == "0123456789\n0123456789\n01234567\n[fsrun: the log ends here: it has reached its limit]\n"


def test_a_mistake_in_the_log_is_told_and_ends_it(opened: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened.log, "_render", lambda *given: 1 / 0)
    opened.log.start()
    opened.log.put(0, b"one\n")
    assert opened.log.wait(90)
    assert opened.notes == ["ZeroDivisionError: division by zero"]


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    number = os.open(tmp_path / "original", os.O_RDWR | os.O_CREAT)
    yield number
    os.close(number)


def test_a_channel_takes_a_descriptor_and_gives_it_back(descriptor: int) -> None:
    before = identify(descriptor)
    channel = Channel([descriptor])
    channel.switch()
    os.write(descriptor, b"through")
    assert os.read(channel.reader.number, 100) == b"through"
    channel.restore()
    channel.restore()
    assert identify(descriptor) == before
    channel.close()
    channel.close()


def test_a_descriptor_that_somebody_else_replaced_is_left(descriptor: int, tmp_path: Path) -> None:
    channel = Channel([descriptor])
    channel.switch()
    with open(tmp_path / "other", "w") as other:
        os.dup2(other.fileno(), descriptor)
        channel.restore()
        assert identify(descriptor) == identify(other.fileno())
    channel.close()


def test_a_number_that_is_another_files_by_now_is_left(tmp_path: Path, descriptor: int) -> None:
    held = Held.copy(descriptor)
    os.close(held.number)
    assert not held.is_ours
    os.dup2(os.open(tmp_path / "other", os.O_WRONLY | os.O_CREAT), held.number)
    held.close()
    assert held.number == -1


def test_where_no_channel_can_be_made_nothing_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> tuple[int, int]:
        raise OSError(errno.EMFILE, "Too many open files")

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(os, "pipe", refuse)
    with pytest.raises(OSError, match="Too many"):
        open_channels()
    assert os.listdir("/proc/self/fd") == before


class Stream:
    """As a notebook's: no descriptor."""

    encoding = "UTF-8"

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, text: str) -> int:
        self.written.append(text)
        return len(text)


Stream.__module__ = "ipykernel.iostream"


def test_a_notebooks_stream_is_copied_and_put_back_where_it_still_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Stream()
    assert is_notebook(inner)
    assert not is_notebook(sys.__stdout__)
    assert not is_notebook(None)
    monkeypatch.setattr(sys, "stdout", inner)
    channel = Channel(())
    assert channel.writer is not None
    os.set_blocking(channel.writer.number, False)
    forwarding = Forwarding("stdout", channel.writer)
    print("caf\u00e9 \ud800")
    sys.stdout.writelines(["a", "b"])
    assert sys.stdout.encoding == "UTF-8"
    assert os.read(channel.reader.number, 100) == "caf\u00e9 \\ud800\nab".encode()
    for _ in range(40):  # more than the pipe holds
        sys.stdout.write("x" * 65536)
    other = Stream()
    monkeypatch.setattr(sys, "stdout", other)
    forwarding.restore()
    assert sys.stdout is other
    monkeypatch.setattr(sys, "stdout", forwarding)
    channel.close()
    sys.stdout.write("without a log")
    forwarding.restore()
    assert sys.stdout is inner
    assert inner.written[-1] == "without a log"


def test_a_channel_for_text_alone_leads_nothing_away() -> None:
    channel = Channel(())
    channel.switch()
    assert channel.has_room()
    channel.restore()
    channel.close()


def test_room_is_told_before_a_write_would_wait(descriptor: int) -> None:
    channel = Channel([descriptor])
    channel.switch()
    assert channel.has_room()
    os.set_blocking(descriptor, False)
    written = os.write(descriptor, b"x" * (1 << 19))
    assert not channel.has_room()
    while written:
        written -= len(os.read(channel.reader.number, 1 << 16))
    assert channel.has_room()
    channel.restore()
    assert channel.has_room()
    channel.close()


def test_a_notebook_and_the_fate_of_the_session(tmp_path: Path) -> None:
    code = """
import fsrun, os, sys
class Stream:
    def write(self, text): return len(text)
    def flush(self): pass
Stream.__module__ = "ipykernel.iostream"
inner = sys.stdout = Stream()
run = fsrun.init("speech", run_id="big", root="{root}")
console = run._live.captures.console
path = run.path + "/files/output.main.2.log"
print("a cell")
os.system("echo a program")
import time; time.sleep(2)
console.reopen(2)
print("continued")
while "continued" not in (open(path).read() if os.path.exists(path) else ""): time.sleep(0.01)
console.fenced(); time.sleep(2)
print("fenced")
os.write(1, b"relayed\\n")
run.finish()
assert sys.stdout is inner
""".replace("{root}", str(tmp_path))
    settings = {"FSRUN_CAPTURE": "1", "FSRUN_SYSTEM": "0", "FSRUN_ENVIRONMENT": "0"}
    status, out, err = run_program(code, tmp_path, **settings)
    assert (status, out, err) == (0, "a program\nrelayed\n", "")
    files = tmp_path / "speech" / "big" / "files"
    text = (files / "output.main.1.log").read_text() + (files / "output.main.2.log").read_text()
    assert sorted(text.splitlines()) == ["a cell", "a program", "continued"]
    assert os.readlink(files / "output.main.log") == "output.main.2.log"


def test_an_embedding_program_is_not_started_again(tmp_path: Path) -> None:
    code = f"""
import fsrun, sys
sys.executable = "/opt/solver/solver"
with fsrun.init("speech", run_id="big", root={str(tmp_path)!r}): print("works")
"""
    settings = {"FSRUN_CAPTURE": "1", "FSRUN_SYSTEM": "0", "FSRUN_ENVIRONMENT": "0"}
    status, out, err = run_program(code, tmp_path, **settings)
    assert (status, out) == (0, "works\n")
    assert "the console is not recorded: solver is no Python interpreter" in err
