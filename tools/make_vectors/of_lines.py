"""Lines of logs: what a number is, what is skipped, where reading stops (protocol.md 6.8, 8.2)."""

from __future__ import annotations

from parts import Points, closed, finding, has_ended, invalid, log, put, reading, row, valid

LOG = "scalars/main.1.jsonl"
DONE = {"main": has_ended()}


def counts(name: str, about: str, lines: bytes, points: Points, rules: str = "8.2") -> None:
    """Add a finished main job whose log holds ``lines``, all of them without fault."""
    valid(name, rules, about, closed("main") | put(LOG, lines), reading(DONE, points))


def faulty(
    name: str,
    about: str,
    lines: bytes,
    points: dict[str, list[list[float | str]]],
    skipped: list[int],
    rules: str = "8.2",
) -> None:
    """Add a finished main job whose log holds ``lines``, of which ``skipped`` are skipped or hold such a value."""
    invalid(
        name,
        rules,
        about,
        closed("main") | put(LOG, lines),
        reading(DONE, points, skipped={LOG: skipped}),
        [finding("error", LOG, "6.8", line) for line in (*skipped[:20], *([None] if len(skipped) > 20 else []))],
    )


A, B = row(1, a=1), row(2, a=2)

counts(
    "torn_last_line",
    "A line without its newline is not there yet.",
    A + B + b'{"step":3,"a":3}',
    {"a": [[1, 1], [2, 2]]},
)
counts("only_a_torn_line", "A log that holds nothing but the begin of a line says nothing.", b'{"step":1,"a":1', {})
counts("empty_log", "A log without a byte says nothing.", b"", {})
counts(
    "nul_block",
    "Reading stops at the first NUL byte, even where whole lines stand after it.",
    A + b"\0" * 512 + b"\n" + B,
    {"a": [[1, 1]]},
)
counts(
    "nul_in_a_line",
    "The line in which the first NUL byte stands is not there.",
    A + b'{"step":2,"a":2\0}\n' + B,
    {"a": [[1, 1]]},
)
counts("nul_first", "A log that begins with a NUL byte says nothing.", b"\0" + A + B, {})
counts(
    "crlf",
    "A carriage return before the newline is white space.",
    A[:-1] + b"\r\n" + B[:-1] + b"\r\n",
    {"a": [[1, 1], [2, 2]]},
)
counts(
    "byte_order_mark",
    "One byte order mark at the begin of a log is passed over.",
    b"\xef\xbb\xbf" + A + B,
    {"a": [[1, 1], [2, 2]]},
)
counts(
    "white_space",
    "White space between the parts of a line is none of its business, nor are lines of nothing else.",
    b'\n \t\r\n  { "step" : 1 ,\t"a" : 1 } \n\n\n{"a":2,"step":2}\n   \n',
    {"a": [[1, 1], [2, 2]]},
)
counts("no_time", "A line needs no time.", b'{"step":1,"a":1}\n{"step":2,"time":null,"a":2}\n', {"a": [[1, 1], [2, 2]]})
counts(
    "time_is_no_number",
    "A time that is no number is none, and costs nothing else.",
    b'{"step":1,"time":"noon","a":1}\n{"step":2,"time":true,"a":2}\n{"step":3,"time":[],"a":3}\n',
    {"a": [[1, 1], [2, 2], [3, 3]]},
)
counts("step_alone", "A line may hold nothing but its step.", b'{"step":1}\n{"step":2,"time":3}\n' + A, {"a": [[1, 1]]})
counts(
    "duplicate_keys",
    "Of one line's duplicate keys the last counts, its step among them, however a key is written.",
    b'{"step":1,"a":1,"a":2}\n{"step":7,"step":2,"a":3}\n{"step":3,"a":4,"\\u0061":5}\n{"step":4,"a":"x","a":6}\n'
    b'{"step":5,"a":7,"a":null}\n',
    {"a": [[1, 2], [2, 3], [3, 5], [4, 6]]},
)
counts(
    "words",
    "NaN and the infinities are the words for them; other programs' bare ones are taken for these.",
    b'{"step":1,"a":"NaN","b":"Infinity","c":"-Infinity"}\n{"step":2,"a":NaN,"b":Infinity,"c":-Infinity}\n'
    b'{"step":3,"a":"\\u004eaN"}\n',
    {
        "a": [[1, "NaN"], [2, "NaN"], [3, "NaN"]],
        "b": [[1, "Infinity"], [2, "Infinity"]],
        "c": [[1, "-Infinity"], [2, "-Infinity"]],
    },
)
counts(
    "null_values",
    "null is no value, and nothing is said about it.",
    b'{"step":1,"a":null,"b":1}\n{"step":2,"a":null}\n',
    {"b": [[1, 1]]},
)
counts(
    "steps",
    "A step is a whole number however it is written; lines come in any order of steps, and points in theirs.",
    b'{"step":12.0,"a":1}\n{"step":1e3,"a":2}\n{"step":1.5e1,"a":3}\n{"step":-5,"a":4}\n{"step":0,"a":5}\n'
    b'{"step":2E+1,"a":6}\n{"step":-30.0,"a":7}\n{"step":50e-1,"a":8}\n{"step":-0,"b":9}\n',
    {"a": [[-30, 7], [-5, 4], [0, 5], [5, 8], [12, 1], [15, 3], [20, 6], [1000, 2]], "b": [[0, 9]]},
)
counts(
    "steps_at_the_limits",
    "Steps have 64 bits.",
    b'{"step":9223372036854775807,"a":1}\n{"step":-9223372036854775808,"a":2}\n',
    {"a": [[-9223372036854775808, 2], [9223372036854775807, 1]]},
    "6.8",
)
counts(
    "big_and_small",
    "A value is the nearest 64-bit float: past them an infinity, below them 0.",
    b'{"step":1,"a":1e400,"b":-1e400,"c":1e-400,"d":9007199254740993}\n'
    b'{"step":2,"a":1.7976931348623157e308,"b":-5e-324,"c":-0.0,"d":18446744073709551616}\n',
    {
        "a": [[1, "Infinity"], [2, 1.7976931348623157e308]],
        "b": [[1, "-Infinity"], [2, -5e-324]],
        "c": [[1, 0], [2, 0]],
        "d": [[1, 9007199254740992], [2, 18446744073709551616]],
    },
    "6.8 8.2",
)
counts(
    "long_digits",
    "A number may have any number of digits.",
    b'{"step":1,"a":0.' + b"3" * 6000 + b',"b":1' + b"0" * 6000 + b',"c":1' + b"0" * 6000 + b"e-5999}\n" + B,
    {"a": [[1, 0.3333333333333333], [2, 2]], "b": [[1, "Infinity"]], "c": [[1, 10]]},
)
counts(
    "tags",
    "The limits of tags bind writers; a reader takes every key as it is, reserved ones of other places among them.",
    b'{"step":1,"":1}\n{"step":2,"' + b"x" * 512 + b'":2}\n{"step":3,"' + b"y" * 513 + b'":3}\n'
    b'{"step":4,"a\\u0001b\\tc":4}\n{"step":5,"Step":5,"session":6,"value":7}\n{"step":6,"\\"\\\\\\/":8}\n'
    b'{"step":7,"\\u007f":9}\n',
    {
        "": [[1, 1]],
        "x" * 512: [[2, 2]],
        "y" * 513: [[3, 3]],
        "a\x01b\tc": [[4, 4]],
        "Step": [[5, 5]],
        "session": [[5, 6]],
        "value": [[5, 7]],
        '"\\/': [[6, 8]],
        "\x7f": [[7, 9]],
    },
    "6.8 8.2",
)
counts(
    "tags_in_other_scripts",
    "Tags are UTF-8 or escaped; two spellings of one text are one tag, and nothing is normalised.",
    '{"step":1,"größe":1,"精度":2,"😀":3}\n'.encode()
    + b'{"step":2,"gr\\u00f6\\u00dfe":4,"\\u7cbe\\u5ea6":5,"\\ud83d\\ude00":6}\n'
    + '{"step":3,"gro\u0308ße":7}\n'.encode(),
    {"größe": [[1, 1], [2, 4]], "精度": [[1, 2], [2, 5]], "😀": [[1, 3], [2, 6]], "gro\u0308ße": [[3, 7]]},
)
counts(
    "long_line",
    "A line of more than a mebibyte, with a thousand tags, is a line.",
    b'{"step":1,' + b" " * 1_200_000 + b",".join(b'"t%d":%d' % (i, i) for i in range(1000)) + b"}\n" + B,
    {**{f"t{i}": [[1, i]] for i in range(1000)}, "a": [[2, 2]]},
)
counts(
    "many_lines",
    "Enough lines that a reader may take another way through them: one value in each.",
    b"".join(b'{"step":%d,"time":1764447000.5,"a":%d}\n' % (i, i % 7) for i in range(600))
    + b'{"step":600.0,"a":1e400}\n',
    {"a": [*([i, i % 7] for i in range(600)), [600, "Infinity"]]},
)

faulty(
    "no_step", "A line without a step is skipped.", A + b'{"time":1,"a":9}\n{}\n' + B, {"a": [[1, 1], [2, 2]]}, [2, 3]
)
faulty(
    "step_is_not_whole",
    "A line whose step is no whole number of 64 bits is skipped.",
    A + b'{"step":1.5,"a":9}\n{"step":"3","a":9}\n{"step":true,"a":9}\n{"step":null,"a":9}\n{"step":[1],"a":9}\n'
    b'{"step":9223372036854775808,"a":9}\n{"step":-9223372036854775809,"a":9}\n{"step":1e30,"a":9}\n'
    b'{"step":1e400,"a":9}\n{"step":"NaN","a":9}\n{"step":15e-1,"a":9}\n{"step":0.1e-5,"a":9}\n' + B,
    {"a": [[1, 1], [2, 2]]},
    [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13],
    "6.8 8.2",
)
faulty(
    "values_that_are_no_numbers",
    "A value that is no number and no word is skipped alone: what stands beside it counts.",
    b'{"step":1,"a":true,"b":1}\n{"step":2,"a":"x","b":2}\n{"step":3,"a":[1],"b":3}\n{"step":4,"a":{},"b":4}\n'
    b'{"step":5,"a":{"b":9,"step":9},"b":5}\n{"step":6,"a":"1.5","b":6}\n{"step":7,"a":"nan","b":7}\n'
    b'{"step":8,"a":"","c":false,"b":8}\n{"step":9,"a":[[{"b":[]}]],"b":9}\n{"step":10,"a":"}\\",\\"b\\":0","b":10}\n'
    b'{"step":11,"a":1,"b":11,"a":false}\n',
    {"b": [[1, 1], [2, 2], [3, 3], [4, 4], [5, 5], [6, 6], [7, 7], [8, 8], [9, 9], [10, 10], [11, 11]]},
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
)
faulty(
    "lines_that_are_no_json",
    "A line that does not parse is skipped, and the lines after it count.",
    A + b"hello\n"
    b"{\n"
    b'{"step":1,"a":9\n'
    b'{"step":1,"a":9}}\n'
    b'{"step":1,"a":9}{"step":1,"a":9}\n'
    b'{"step":1,"a":9,}\n'
    b'{"step":1 "a":9}\n'
    b'{"step":1,"a"}\n'
    b"{'step':1,'a':9}\n"
    b"{step:1,a:9}\n"
    b'{"step":1,"a":9} // why\n'
    b'{"step":1,"a":"9\n'
    b'{"step":1,"a\\x":9}\n'
    b'{"step":1,"a":"\\u12"}\n'
    b'{"step":1,,"a":9}\n'
    b'{"step":1;"a":9}\n'
    b'{"step":1,"a\tb":9}\n'
    b'{"step":1,"a":undefined}\n'
    b'{"step":1,"a":True}\n'
    b'{"step":1,"a":[1}\n'
    b'{"step":1,"a":{"b":1}\n' + B,
    {"a": [[1, 1], [2, 2]]},
    [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22],
)
faulty(
    "numbers_that_are_no_json",
    "What other languages take for a number is none here, and its line does not parse.",
    A + b'{"step":01,"a":9}\n{"step":3,"a":01}\n{"step":3,"a":+1}\n{"step":3,"a":.5}\n{"step":3,"a":5.}\n'
    b'{"step":3,"a":1e}\n{"step":3,"a":0x10}\n{"step":3,"a":1_000}\n{"step":3,"a":Inf}\n{"step":3,"a":-Inf}\n'
    b'{"step":3,"a":nan}\n{"step":3,"a":-NaN}\n{"step":3,"a":- 1}\n{"step":3,"a":1 000}\n{"step":3,"a":1,5}\n' + B,
    {"a": [[1, 1], [2, 2]]},
    [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
)
faulty(
    "lines_that_are_no_objects",
    "A line that is JSON but no object is skipped.",
    b'[1,2]\n3\n"step"\nnull\ntrue\n[{"step":1,"a":9}]\n' + A,
    {"a": [[1, 1]]},
    [1, 2, 3, 4, 5, 6],
)
faulty(
    "not_utf8",
    "A line that is not UTF-8 does not parse: Latin-1, a lone surrogate's bytes, an overlong slash, a cut character.",
    A + b'{"step":1,"gr\xf6\xdfe":9}\n{"step":1,"\xed\xa0\x80":9}\n{"step":1,"\xc0\xaf":9}\n{"step":1,"\xe2\x82":9}\n'
    b'{"step":1,"a":9,"b":"\xff"}\n{"step":1,"\xf4\x90\x80\x80":9}\n' + B,
    {"a": [[1, 1], [2, 2]]},
    [2, 3, 4, 5, 6, 7],
)
faulty(
    "lone_surrogates",
    "Half of a surrogate pair is no text, so its line does not parse.",
    A + b'{"step":1,"\\ud800":9}\n{"step":1,"a":9,"b":"\\udc00"}\n'
    b'{"step":1,"\\ud800\\ud800":9}\n{"step":1,"\\uD83Dx":9}\n'
    b'{"step":1,"\\ude00\\ud83d":9}\n' + B,
    {"a": [[1, 1], [2, 2]]},
    [2, 3, 4, 5, 6],
)
faulty(
    "byte_order_mark_later",
    "A byte order mark elsewhere than at the begin of the log is no white space.",
    b"\xef\xbb\xbf\xef\xbb\xbf" + A + b"\xef\xbb\xbf" + A + B,
    {"a": [[2, 2]]},
    [1, 2],
)
faulty(
    "other_white_space",
    "White space that JSON does not know is none.",
    b'\x0b\n\x0c\n{"step":1,\xc2\xa0"a":9}\n\xe2\x80\xa8\n' + A,
    {"a": [[1, 1]]},
    [1, 2, 3, 4],
)
faulty(
    "deep_nesting",
    "Nesting without end brings no reader down: lines of 100,000 brackets and braces, open and closed.",
    b"[" * 100_000
    + b"\n"
    + b"[" * 100_000
    + b"]" * 100_000
    + b'\n{"step":1,"a":'
    + b"[" * 100_000
    + b"]" * 100_000
    + b"}\n"
    + b'{"a":' * 100_000
    + b"1"
    + b"}" * 100_000
    + b'\n{"step":1,"a":'
    + b'{"a":' * 100_000
    + b"\n"
    + A
    + B,
    {"a": [[1, 1], [2, 2]]},
    [1, 2, 3, 4, 5],
)
faulty(
    "nesting_at_the_limit",
    "100 arrays and objects in one another, the line among them, parse; 101 do not.",
    b'{"step":1,"a":1,"b":' + b"[" * 99 + b"]" * 99 + b'}\n{"step":2,"a":2,"b":' + b"[" * 100 + b"]" * 100 + b"}\n",
    {"a": [[1, 1]]},
    [1, 2],
)
faulty(
    "faults_among_many_lines",
    "The same garbage among so many good lines that a reader may take another way through them.",
    b"".join(b'{"step":%d,"time":1764447000.5,"a":1}\n' % i for i in range(300))
    + b'{"step":300,"a":Inf}\n{"step":301,"a":[[1]],"b":2}\n{"step":302,"a":01}\n{"step":303,"a":"\\ud800"}\nx\n'
    + b"".join(b'{"step":%d,"time":1764447000.5,"a":1}\n' % i for i in range(305, 600)),
    {"a": [[i, 1] for i in range(600) if not 300 <= i < 305], "b": [[301, 2]]},
    [301, 302, 303, 304, 305],
)
faulty(
    "entry_is_no_text",
    "A line whose entry is neither text nor null is skipped.",
    b'{"step":1,"a":9,"entry":7}\n{"step":1,"a":9,"entry":["x.1"]}\n{"step":1,"a":1,"entry":null}\n' + B,
    {"a": [[1, 1], [2, 2]]},
    [1, 2],
)

faulty(
    "many_faults",
    "Ninety faulty lines are all reported by readers; a check names twenty of them, and counts the others.",
    b"x\n" * 90 + A,
    {"a": [[1, 1]]},
    list(range(1, 91)),
)
invalid(
    "faults_past_the_fence",
    "4.7 8.2",
    "What does not count is not reported either: faulty lines past a fence and after a NUL byte.",
    closed("main", 1, "crashed", "expired")
    | closed("main", 2, fence={LOG: len(A) + 2})
    | log("main", 1, A, b"x\n", b"y\n")
    | log("main", 2, B, b"z\n", b"\0\n", b"z\n"),
    reading({"main": has_ended(2)}, {"a": [[1, 1], [2, 2]]}, skipped={LOG: [2], "scalars/main.2.jsonl": [2]}),
    [finding("error", LOG, "6.8", 2), finding("error", "scalars/main.2.jsonl", "6.8", 2)],
)
