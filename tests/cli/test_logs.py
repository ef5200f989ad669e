"""``fsrun logs``: which console, and that it is only text."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsrun.cli import logs
from fsrun.cli.plain import MAX_LINE, PlainText, plain_line
from fsrun.disk.fs import LocalFileSystem
from tests.support import build
from tests.support.command import fsrun


def test_the_newest_console_is_printed_or_the_one_asked_for(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1)
    run.write("files/output.main.2.log", "old\n")
    run.write("files/output.main.10.log", "new\nlast line")
    run.write("files/output.eval.3.log", "eval\n")
    assert fsrun("logs", "big", root=tmp_path).stdout == "new\nlast line\n"
    assert fsrun("logs", "big", "--session", "2", root=tmp_path).stdout == "old\n"
    assert fsrun("logs", "big", "--job", "eval", root=tmp_path).stdout == "eval\n"


def test_a_console_that_was_not_recorded_is_not_found(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1)
    result = fsrun("logs", "big", root=tmp_path)
    assert (result.exit_code, "session 1 has ended and did not record it" in result.stderr) == (4, True)
    assert fsrun("logs", "big", "-f", root=tmp_path).exit_code == 4, "nothing can come any more"
    run.write("files/output.main.1.log", "x\n")
    result = fsrun("logs", "big", "--session", "7", root=tmp_path)
    assert (result.exit_code, "session 7 has not started; recorded are: 1" in result.stderr) == (4, True)
    result = fsrun("logs", "big", "--job", "eval", root=tmp_path)
    assert (result.exit_code, "job eval: the job has not started; there are: main" in result.stderr) == (4, True)
    assert fsrun("logs", "big", "--job", "../../etc", root=tmp_path).exit_code == 2


def test_a_console_that_may_come_is_told_apart_and_waited_for_when_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = build.run(tmp_path)
    run.lock("main", 1)
    result = fsrun("logs", "big", root=tmp_path)
    assert (result.exit_code, "session 1 has printed nothing yet, or does not record it" in result.stderr) == (4, True)
    steps = iter([
        lambda: run.end("main", 1, "failed", reason="preempted"),
        lambda: run.lock("main", 2),
        lambda: (run.write("files/output.main.2.log", "hello\n"), run.end("main", 2)),
    ])  # fmt: skip
    monkeypatch.setattr(logs.time, "sleep", lambda seconds: next(steps)())
    result = fsrun("logs", "big", "-f", root=tmp_path)
    assert (result.exit_code, result.stdout) == (0, "hello\n")
    assert result.stderr.startswith("fsrun: waiting: session 1 has printed nothing yet")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b2Jcleared", "cleared"),
        ("\x1bP+q544e\x1b\\answer", "answer"),
        ("\x1b]never ended", "never ended"),
        (" 50%|##  |\r100%|####|", "100%|####|"),
        ("a long line\rshort", "shortg line"),
        ("a long line\r\x1b[Kshort", "short"),
        ("50%\r100%\r", "100%"),
        ("ab\bc", "ac"),
        ("\b\bx", "x"),
        ("windows\r", "windows"),
        ("\x1b[A\x1b[5D\x1b[?25lmoved", "moved"),
        ("tab\there", "tab     here"),
        ("nul\0 bell\x07", "nul\\x00 bell\\x07"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("loss 0.5 \u00e9 \u2713", "loss 0.5 \u00e9 \u2713"),
        ("\x1b", ""),
        ("\x1b[", ""),
    ],
)
def test_a_console_line_becomes_plain_text(raw: str, shown: str) -> None:
    assert plain_line(raw) == shown


def test_text_cut_at_any_byte_gives_the_same_lines() -> None:
    data = "caf\u00e9 \x1b[31mred\x1b[0m\n\u2713 50%\r100%\nend".encode()
    whole = PlainText()
    expected = whole.feed(data) + whole.end()
    assert expected == "caf\u00e9 red\n100%%\nend\n"
    for cut in range(len(data)):
        text = PlainText()
        assert text.feed(data[:cut]) + text.feed(data[cut:]) + text.end() == expected


def test_bytes_that_are_no_text_and_lines_without_an_end_are_bounded() -> None:
    text = PlainText()
    assert text.feed(b"\xff\xfe\n") == "\ufffd\ufffd\n"
    printed = text.feed(b"x" * (3 * MAX_LINE + 1))
    assert printed.count("\n") == 3
    assert text.end() == "x\n"


def test_following_goes_on_into_later_sessions_and_ends_when_the_job_has_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = build.run(tmp_path)
    run.lock("main", 1)
    run.write("files/output.main.1.log", "one\n")
    steps = iter(
        [
            lambda: run.write("files/output.main.1.log", "one\ntwo\n"),
            lambda: (run.end("main", 1, "failed", reason="preempted"), run.lock("main", 2)),
            lambda: run.write("files/output.main.2.log", "three\n"),
            lambda: (run.write("files/output.main.2.log", "three\nfour"), run.end("main", 2)),
        ]
    )
    monkeypatch.setattr(logs, "POLL", 0.0)

    class Steps(LocalFileSystem):
        """Takes the next step whenever nothing new was found."""

        def read(self, path: str, start: int = 0, limit: int | None = None) -> bytes:
            data = super().read(path, start, limit)
            if not data and path.endswith(".log"):
                next(steps, lambda: None)()
            return data

    printed = "".join(logs.read_console(Steps(), str(run.path), "main", 1, follow=True))
    assert printed == "one\ntwo\nthree\nfour\n"


def test_a_long_console_is_shown_a_piece_at_a_time_and_its_holes_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_PIECE", 7)
    run = build.run(tmp_path)
    run.session("main", 1)
    run.write("files/output.main.1.log", "one\ntwo €\n" + "\0" * 50 + "three")
    printed = list(logs.read_console(LocalFileSystem(), str(run.path), "main", 1, follow=False))
    assert "".join(printed) == "one\ntwo €\nthree\n"
    assert len(printed) > 5
