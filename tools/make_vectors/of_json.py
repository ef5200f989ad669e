"""JSON as only a parser reads it: keys in keys, escapes, numbers to the last digit (protocol.md 6, 8.2).

Each of these is read wrong by some program that looks for texts in place of parsing.
"""

from __future__ import annotations

from parts import (
    Json,
    at,
    closed,
    end,
    finding,
    has_ended,
    invalid,
    is_running,
    lock,
    log,
    meta,
    put,
    reading,
    row,
    series,
    valid,
)

LOG = "scalars/main.1.jsonl"
ONE = series("a", {1: 1, 2: 2})
POINTS = {"a": [[1, 1], [2, 2]]}
MAIN: Json = {"main": has_ended()}
BOTH: Json = {"main": has_ended(), "eval": has_ended()}

valid(
    "keys_in_keys",
    "6",
    "Only a record's own keys say something, not those of what it holds, nor texts that look like keys.",
    lock("main", config={"status": "failed", "fence": {LOG: 0}, "session": 9, "protocol": "9.0", "continues": True})
    | put(
        "jobs/main.1.end",
        '{"summary":{"status":"failed","reason":"no"},"error":{"status":"crashed"},"note":"\\"status\\":\\"failed\\",",'
        '"protocol":"1.0","job":"main","session":1,"status":"finished","reason":null,"x":{"reason":"no"}}\n',
    )
    | log("main", 1, ONE),
    reading(MAIN, POINTS),
)
valid(
    "keys_in_keys_of_a_fence",
    "4.7 6",
    "The fence is the lock's own key, wherever it stands, and its paths may be escaped.",
    closed("main", 1, "crashed", "expired")
    | put(
        "jobs/main.2.lock",
        '{"config":{"fence":{"scalars/main.1.jsonl":0},"continues":true,"text":"\\"fence\\":{}"},'
        '"protocol":"1.0","job":"main","session":2,"token":"main00000002","timeout":30,"continues":false,'
        f'"f\\u0065nce":{{"scalars\\/main.1.jsonl":{len(ONE)},"system/main/1.jsonl":0}},"later":{{"fence":{{}}}}}}\n',
    )
    | end("main", 2)
    | log("main", 1, ONE, row(3, late=1)),
    reading({"main": has_ended(2)}, POINTS),
)
valid(
    "keys_in_keys_of_an_outcome",
    "5.9 6",
    "An outcome's state, step and scores are its own; details and engine may hold keys of the same names.",
    closed("main")
    | closed("eval")
    | meta("a.pt", 7, note={"step": 9})
    | put(
        "evals/a.pt.1.json",
        '{"details":{"state":"failed","scores":{"acc":9},"step":9,"why":"\\"state\\":\\"lost\\"}"},"protocol":"1.0",'
        '"entry":"a.pt","attempt":1,"scores":{"acc":0.5,"step":3,"state":4,"eval\\/f1":"NaN"},"state":"done",'
        '"engine":{"step":8,"state":"lost"},"step":7,"job":"eval","session":1,"time":1764447107.5}\n',
    ),
    reading(
        BOTH,
        {"acc": [[7, 0.5]], "step": [[7, 3]], "state": [[7, 4]], "eval/f1": [[7, "NaN"]]},
        entries={"a.pt": at(None, "done")},
    ),
)
valid(
    "escaped_keys",
    "6 8.2",
    "Escapes are undone before keys and words are compared, reserved ones and those of records too.",
    put(
        "jobs/main.1.lock",
        '{"pr\\u006ftocol":"\\u0031.0","j\\u006fb":"main","session":1,"token":"main00000001","timeout":30}\n',
    )
    | put(
        "jobs/main.1.end",
        '{"protocol":"1.0","job":"main","session":1,"st\\u0061tus":"fail\\u0065d","re\\u0061son":"a\\/b\\n\\"c\\"\\\\"}\n',
    )
    | put(
        LOG,
        b'{"\\u0073tep":1,"t\\u0069me":1,"a":1}\n{"step":2,"a":2,"\\u0065ntry":null}\n{"step":3,"b\\/c":"\\u004eaN"}\n',
    ),
    reading({"main": has_ended(1, "failed", 'a/b\n"c"\\')}, {**POINTS, "b/c": [[3, "NaN"]]}),
)
valid(
    "duplicate_keys_of_records",
    "6 8.2",
    "Of a record's duplicate keys the last counts, as of a line's.",
    closed("main", 1, "crashed", "expired")
    | put(
        "jobs/main.2.lock",
        '{"protocol":"1.0","job":"main","session":2,"token":"main00000002","timeout":30,'
        f'"fence":{{"{LOG}":0}},"fence":{{"{LOG}":9,"{LOG}":{len(ONE)}}}}}\n',
    )
    | put("jobs/main.2.end", '{"status":"failed","protocol":"1.0","job":"main","session":2,"status":"finished"}\n')
    | log("main", 1, ONE, row(3, late=1)),
    reading({"main": has_ended(2)}, POINTS),
)
valid(
    "rounding",
    "8.2",
    "The nearest float to the last digit, halves to the even one.",
    closed("main")
    | put(
        LOG,
        b'{"step":1,"a":0.1,"b":1e23,"c":8.41e21,"d":9007199254740993,"e":5e-324}\n'
        b'{"step":2,"a":2.4703282292062328e-324,"b":2.4703282292062327e-324,"c":9007199254740993.0,"d":1E+5,"e":-1e-5}\n'
        b'{"step":3,"a":1.7976931348623158e308,"b":1.7976931348623159e308,"c":123456789012345678,"d":0e5,"e":1e00}\n'
        b'{"step":4,"a":0.30000000000000004,"b":100000000000000000000000,"c":-0.1E1,"d":0.000001,"e":4.35}\n'
        b'{"step":5,"a":2.2250738585072011e-308,"b":9007199254740995,"c":1.00000000000000011102230246251565404e0}\n',
    ),
    reading(
        MAIN,
        {
            "a": [
                [1, 0.1],
                [2, 5e-324],
                [3, 1.7976931348623157e308],
                [4, 0.30000000000000004],
                [5, 2.225073858507201e-308],
            ],
            "b": [[1, 1e23], [2, 0], [3, "Infinity"], [4, 1e23], [5, 9007199254740996]],
            "c": [[1, 8.41e21], [2, 9007199254740992], [3, 123456789012345680], [4, -1], [5, 1]],
            "d": [[1, 9007199254740992], [2, 100000], [3, 0], [4, 0.000001]],
            "e": [[1, 5e-324], [2, -0.00001], [3, 1], [4, 4.35]],
        },
    ),
)
valid(
    "steps_past_the_floats",
    "8.2",
    "Steps are exact: two that have one float are two; 0 and -0.0 are one.",
    closed("main")
    | put(
        LOG,
        b'{"step":9007199254740993,"a":1}\n{"step":9007199254740992,"a":2}\n{"step":9223372036854775806,"a":3}\n'
        b'{"step":9223372036854775807,"a":4}\n{"step":-9007199254740993,"a":5}\n{"step":-9007199254740992,"a":6}\n'
        b'{"step":0,"a":7}\n{"step":-0.0,"a":8}\n{"step":1000000000000000000000e-18,"a":9}\n{"step":1e18,"a":10}\n',
    ),
    reading(
        MAIN,
        {
            "a": [
                [-9007199254740993, 5],
                [-9007199254740992, 6],
                [0, 8],
                [1000, 9],
                [9007199254740992, 2],
                [9007199254740993, 1],
                [1000000000000000000, 10],
                [9223372036854775806, 3],
                [9223372036854775807, 4],
            ]
        },
    ),
)
invalid(
    "words_that_are_none",
    "8.2",
    "Only the three words, to the letter, stand for numbers.",
    closed("main")
    | put(
        LOG,
        b'{"step":1,"a":" NaN","b":1}\n{"step":2,"a":"infinity","b":2}\n{"step":3,"a":"+Infinity","b":3}\n'
        b'{"step":4,"a":"INF","b":4}\n{"step":5,"a":"-NaN","b":5}\n{"step":6,"a":"NaN ","b":6}\n'
        b'{"step":7,"a":"0x1","b":7}\n',
    ),
    reading(MAIN, {"b": [[n, n] for n in range(1, 8)]}, skipped={LOG: [1, 2, 3, 4, 5, 6, 7]}),
    [finding("error", LOG, "6.8", n) for n in range(1, 8)],
)
invalid(
    "escapes_that_are_none",
    "8.2",
    "Escapes and characters that JSON does not know.",
    closed("main")
    | put(
        LOG,
        b'{"step":1,"\\a":9}\n{"step":1,"\\u00g0":9}\n{"step":1,"\\U0061":9}\n{"step":1,"\\u+123":9}\n{"step":1,"\\\'":9}\n'
        b'{"step":1,"a\x01":9}\n{"step":1,"a\x1f":9}\n{"step":1,"a\x7f":1}\n{"step":1,"a":9\x00}\n{"step":1,"a":9}\n',
    ),
    reading(MAIN, {"a\x7f": [[1, 1]]}, skipped={LOG: [1, 2, 3, 4, 5, 6, 7]}),
    [finding("error", LOG, "6.8", n) for n in range(1, 8)],
)
invalid(
    "records_that_are_no_json",
    "6 8.2",
    "A record is one JSON object and nothing else: two of them, an array, a bare NaN, nesting without end are none.",
    closed("main", 1, "crashed", "expired")
    | put("jobs/main.2.lock", lock("main", 2, fence={LOG: 0})["jobs/main.2.lock"] * 2)
    | put("jobs/main.2.end", b'[{"status":"failed"}]\n')
    | lock("eval")
    | put("jobs/eval.1.end", '{"protocol":"1.0","job":"eval","session":1,"status":"finished","summary":{"x":NaN}}\n')
    | lock("probe")
    | put(
        "jobs/probe.1.end",
        '{"protocol":"1.0","job":"probe","session":1,"status":"finished","x":' + "[" * 100 + "]" * 100 + "}\n",
    )
    | lock("test")
    | put(
        "jobs/test.1.end",
        '{"protocol":"1.0","job":"test","session":1,"status":"finished","x":' + "[" * 99 + "]" * 99 + "}\n",
    )
    | log("main", 1, ONE),
    reading(
        {
            "main": has_ended(2, "crashed"),
            "eval": has_ended(1, "crashed"),
            "probe": has_ended(1, "crashed"),
            "test": has_ended(),
        },
        POINTS,
    ),
    [
        finding("error", "jobs/main.2.lock", "6"),
        finding("error", "jobs/main.2.end", "6"),
        finding("error", "jobs/eval.1.end", "6"),
        finding("error", "jobs/probe.1.end", "6"),
    ],
)
valid(
    "a_record_over_many_lines",
    "6",
    "A record may have any white space within, and end in more than one newline.",
    put(
        "jobs/main.1.lock",
        '{\n"protocol"\n:\n"1.0"\n,"job":\t"main",\r"session" : 1 ,\n\n"token":"main00000001",\n"timeout":30\n}\n\n',
    )
    | put("jobs/main.1.main00000001.beat.3")
    | log("main", 1, ONE),
    reading({"main": is_running()}, POINTS),
)
