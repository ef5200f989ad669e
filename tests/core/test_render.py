"""A console becomes readable text: what a terminal would have shown, in lines, of bounded size."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsrun.core.render import MAX_LINE, ROWS, SNAPSHOT, Renderer

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def render(data: bytes | str) -> str:
    renderer = Renderer()
    return renderer.feed(data.encode() if isinstance(data, str) else data, 0.0) + renderer.end()


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("a\nb\n", "a\nb\n"),
        ("no end", "no end\n"),
        ("a\n\nb\n\n\n", "a\n\nb\n"),
        ("a\tb  \n", "a\tb  \n"),
        ("windows\r\nlines\r\n", "windows\nlines\n"),
        ("\x1b[31mred\x1b[0m \x1b[38;5;12mblue\x1b[m\n", "red blue\n"),
        ("\x1b]0;title\x07text\n", "text\n"),
        ("\x1b]0;title\x1b\\text\n", "text\n"),
        ("\x9d0;title\x9ctext\n", "text\n"),
        ("\x1b]never ended\nnext\n", "\nnext\n"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", "link\n"),
        ("\x1bPq#0;2;0\x1b\\image\n", "image\n"),
        ("10%\r20%\r100%\n", "100%\n"),
        ("100 of 100\rdone\x1b[K\n", "done\n"),
        ("100 of 100\r\x1b[2Kdone\n", "done\n"),
        ("abc\x1b[1K\n", ""),
        ("abc\x1b[2D\x1b[1KX\n", " Xc\n"),
        ("abcdef\r\x1b[2Pz\n", "zdef\n"),
        ("abc\r\x1b[2@x\n", "x abc\n"),
        ("abc\r\x1b[2Xz\n", "z c\n"),
        ("ab\x1b[@c\n", "abc\n"),
        ("spinner |\b/\b-\b\\\n", "spinner \\\n"),
        ("\b\bx\n", "x\n"),
        ("a\x1b[5Cb\n", "a     b\n"),
        ("abc\x1b[2Gx\n", "axc\n"),
        ("one\ntwo\x1b[Aup\n", "oneup\ntwo\n"),
        ("one\ntwo\x1b[1Fup\n", "upe\ntwo\n"),
        ("one\x1b[2Edown", "one\n\ndown\n"),
        ("one\x1bMtwo\n", "onetwo\n"),
        ("one\x1bEtwo\x1bDthree", "one\ntwo\nthree\n"),
        ("one\ntwo\n\x1b[2A\x1b[J", ""),
        ("one\ntwo\n\x1b[2A\x1b[1J", "one\ntwo\n"),
        ("one\n\x1b[H\x1b[2Jtwo\n", "one\ntwo\n"),
        ("one\n\x1bctwo\n", "one\ntwo\n"),
        ("a\x1b[2;3Hb\n", "a\n  b\n"),
        ("a\nb\nc\x1b[1HB\n", "B\nb\nc\n"),
        ("\x1b[?25l\x1b[?1049hx\x1b(B\x1b=\x1b[0 q\n", "x\n"),
        ("bell\x07 nul\0 del\x7f\n", "bell nul del\n"),
        ("\x1b\x07a\x1b", "a\n"),
        ("\x1b[12\nb", "12\nb\n"),
        ("\x1b[99999999999999999999999Ax\x1b[<5m\x1b[:A\n", "x\n"),
        ("", ""),
        ("caf\u00e9 \u2713 \U0001f600 \u65e5\u672c\n", "caf\u00e9 \u2713 \U0001f600 \u65e5\u672c\n"),
    ],
)
def test_what_a_terminal_would_have_shown(printed: str, shown: str) -> None:
    assert render(printed) == shown


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"\xff\xfe\n", "\\xff\\xfe\n"),
        (b"caf\xe9\n", "caf\\xe9\n"),
        (b"cut \xe2\x9c", "cut \\xe2\\x9c\n"),
        (b"\xed\xa0\x80\n", "\\xed\\xa0\\x80\n"),
    ],
)
def test_bytes_that_are_no_text_stay_readable(printed: bytes, shown: str) -> None:
    assert render(printed) == shown


def bars(outer: int, inner: int, *, leave: bool, write: bool) -> list[str]:
    """What two nested bars of tqdm send, one string a write."""
    sent = []
    for i in range(outer):
        sent.append(f"\router {i}/{outer}")
        for j in range(inner):
            sent += ["\n", f"\rinner {j}/{inner} \x1b[32m##\x1b[0m", "\x1b[A"]
            if write:
                sent += ["\r" + " " * 20 + "\r", "\n", "\r" + " " * 20 + "\r", "\x1b[A"]
                sent += [f"note {i}.{j}", "\n", f"\router {i}/{outer}", "\n", f"\rinner {j}/{inner} ##", "\x1b[A"]
        sent += ["\n", f"\rinner {inner}/{inner} ##" if leave else "\r" + " " * 20 + "\r", "\x1b[A"]
    return [*sent, f"\router {outer}/{outer}", "\n"]


def test_nested_bars_leave_what_stood_last() -> None:
    sent = "".join(bars(5, 5, leave=False, write=False))
    assert render(f"start\n{sent}end\n") == "start\nouter 5/5\nend\n"
    assert render("".join(bars(5, 5, leave=True, write=False)) + "\nend\n") == "outer 5/5\ninner 5/5 ##\nend\n"


def test_text_between_nested_bars_is_kept_in_order() -> None:
    notes = "".join(f"note {i}.{j}\n" for i in range(5) for j in range(5))
    assert render("".join(bars(5, 5, leave=False, write=True))) == f"{notes}outer 5/5\n"


def test_nested_bars_that_run_for_an_hour_are_a_few_lines() -> None:
    renderer, sent = Renderer(), bars(60, 60, leave=False, write=False)
    text = ""
    for number, piece in enumerate(sent):
        now = number * 3600 / len(sent)
        # Whatever half of a movement stands when the time has come.
        text += renderer.feed(piece.encode(), now) + renderer.settle(now)
    text += renderer.end()
    assert 360 <= len(text.splitlines()) <= 2 * 361
    assert text.endswith("outer 60/60\n")


def test_a_progress_display_of_several_rows_is_bounded_and_ends_with_its_last_state() -> None:
    renderer, text = Renderer(), ""
    for second in range(600):
        up = "\r\x1b[2K" + "\x1b[1A\x1b[2K" * 3 if second else ""
        rows = "\n".join(f"task {k}: {second}" for k in range(4))
        text += renderer.feed(f"{up}{rows}".encode(), second) + renderer.settle(second)
    text += renderer.feed(b"\ndone\n", 600.0) + renderer.end()
    assert text.endswith("".join(f"task {k}: 599\n" for k in range(4)) + "done\n")
    assert len(text.splitlines()) <= 4 * 61 + 1


def test_a_line_is_done_half_a_second_after_the_next_one_began() -> None:
    renderer = Renderer()
    assert renderer.feed(b"one\ntwo", 1.0) + renderer.settle(1.0) == ""
    assert renderer.waits
    assert renderer.settle(1.4) == ""
    assert renderer.settle(1.6) == "one\n"
    assert renderer.waits


def test_who_gives_way_gives_its_lines_out_but_not_rows_that_are_rewritten() -> None:
    renderer = Renderer()
    assert renderer.feed(b"one\ntwo\nthr", 0.0) + renderer.give_way(0.0) == "one\ntwo\n"
    assert renderer.feed(b"ee\nbar\n\x1b[A\r\n", 0.0) + renderer.give_way(0.0) == ""
    assert renderer.end() == "three\nbar\n"


def test_a_bar_is_shown_every_ten_seconds_and_not_twice_when_done() -> None:
    renderer = Renderer()
    text = ""
    for tenth in range(1, 250):
        text += renderer.feed(f"\r{tenth}/249".encode(), tenth / 10) + renderer.settle(tenth / 10)
    assert [len(text.splitlines()), text.splitlines()[0]] == [2, "101/249"]
    assert renderer.settle(25 + SNAPSHOT) == "249/249\n"
    assert not renderer.waits
    assert renderer.settle(25 + 3 * SNAPSHOT) == ""
    assert renderer.feed(b"\nnext\n", 60.0) + renderer.end() == "next\n"


def test_a_prompt_is_shown_though_its_line_has_no_end() -> None:
    renderer = Renderer()
    renderer.feed(b"name? ", 0.0)
    assert renderer.settle(SNAPSHOT) == "name? \n"


def test_a_screen_that_is_cleared_all_the_time_is_shown_every_ten_seconds() -> None:
    renderer, text = Renderer(), ""
    for tenth in range(300):
        text += renderer.feed(f"\x1b[H\x1b[2Jscreen {tenth}\n".encode(), tenth / 10)
    assert text.splitlines() == ["screen 99", "screen 199"]


def test_an_endless_line_is_cut_with_a_mark() -> None:
    renderer = Renderer()
    text = "".join(renderer.feed(b"x" * (1 << 20), 0.0) for _ in range(50)) + renderer.feed(b"\nnext\n", 0.0)
    text += renderer.end()
    line, after = text.splitlines()
    assert line == "x" * MAX_LINE + f" [fsrun: {(50 << 20) - MAX_LINE} more characters]"
    assert after == "next"


def test_an_endless_line_that_is_overwritten_stays_bounded() -> None:
    renderer = Renderer()
    text = renderer.feed(b"x" * MAX_LINE + b"\x1b[3Dabcdef\rstart\n", 0.0) + renderer.end()
    assert text.startswith("start" + "x" * 100)
    assert len(text) < MAX_LINE + 100


def test_many_lines_at_once_come_out_in_order_and_all() -> None:
    lines = "".join(f"{n}\n" for n in range(100_000))
    assert render(lines) == lines
    renderer = Renderer()
    text = renderer.feed(lines.encode(), 0.0)
    assert len(lines.splitlines()) - len(text.splitlines()) <= ROWS
    assert text + renderer.end() == lines


def test_movements_to_nowhere_add_no_more_than_a_screen() -> None:
    assert len(render("\x1b[9999B\x1b[9999Cx" * 10)) < 60 * 600 * 10
    assert render("\x1b[999Bx\n").count("\n") == ROWS


def test_what_comes_after_the_end_starts_anew() -> None:
    renderer = Renderer()
    text = renderer.feed(b"one\n\n\ntwo \x1b]title", 0.0) + renderer.end()
    assert text + renderer.feed(b"\x07three\n", 0.0) + renderer.end() == "one\n\n\ntwo \nthree\n"


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=4))
def test_cut_anywhere_the_text_is_the_same(data: bytes, cuts: list[int]) -> None:
    renderer, text, at = Renderer(), "", 0
    for cut in sorted(cuts):
        text += renderer.feed(data[at:cut], 0.0)
        at = max(at, cut)
    assert text + renderer.feed(data[at:], 0.0) + renderer.end() == render(data)


PIECES = st.one_of(
    st.binary(max_size=20),
    st.text(max_size=10).map(lambda text: text.encode("utf-8", "replace")),
    st.sampled_from(
        rb"\r \n \b \t \x07 \x1b \x1b[ \xc2 \x9b text \x1b[A \x1b[2A \x1b[B \x1b[K \x1b[2K \x1b[J \x1b[2J \x1b[H "
        rb"\x1b[5;5H \x1b[9C \x1b[99D \x1b[3P \x1b[3@ \x1b[3X \x1b]0; \x1bM \x1b[?25l \x1b[31m".split()
    ).map(lambda text: text.decode("unicode_escape").encode("latin-1")),
)


@given(st.lists(st.tuples(PIECES, st.sampled_from([0.0, 0.3, 5.0, 20.0])), max_size=40))
def test_whatever_is_printed_becomes_lines_without_controls(pieces: list[tuple[bytes, float]]) -> None:
    renderer, text, now, size = Renderer(), "", 0.0, 0
    for data, pause in pieces:
        now += pause
        size += len(data)
        text += renderer.feed(data, now) + (renderer.end() if pause == 20 else renderer.settle(now))
    text += renderer.end()
    assert not CONTROL.search(text)
    assert text == "" or text.endswith("\n")
    assert not renderer.waits
    text.encode()
    rows = (len(pieces) + 1) * ROWS
    assert len(text) <= (size * 4 + 600) * rows
