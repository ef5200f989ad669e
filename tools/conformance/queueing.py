"""Scenarios of the hand-over: entries with their metas, names used again, FINISHED (protocol.md 5.1, 5.8)."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import folder
from driven import expect
from stage import Stage, scenario

BIG = b"".join(b"%06d " % number for number in range(7143))[:50001]
"""No block of it is like another one, so that the digest of a file over 12 KiB tells which blocks it is of."""
FILES = {"a/model.bin": b"m" * 9000, "a/deep/tokens.txt": b"t" * 5, "big": BIG}


def sample(content: bytes) -> str:
    """The sample of a file's content as 6.4 has it."""
    if len(content) > 12288:
        half = len(content) // 2
        content = content[:4096] + content[-4096:] + content[half : half + 4096]
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def check_meta(stage: Stage, entry: str, kind: str, step: int, files: dict[str, bytes]) -> None:
    """The meta of an entry says what was handed over."""
    meta = folder.meta(stage.run, entry)
    wanted = {"entry": entry, "kind": kind, "step": step, "main_session": 1}
    for key, value in wanted.items():
        expect(meta.get(key) == value, f"the meta of {entry} says {key} {meta.get(key)!r}, expected {value!r}", "6.4")
    expect(type(meta.get("order")) is int, f"the meta of {entry} has the order {meta.get('order')!r}", "6.4")
    stated = {item["name"]: item for item in meta.get("files", ())}
    expect(stated.keys() == files.keys(), f"the meta of {entry} names the files {sorted(stated)}", "6.4")
    for name, content in files.items():
        size, digest = stated[name].get("size"), stated[name].get("sample", sample(content))
        expect(size == len(content), f"the meta of {entry} says that {name!r} has {size} bytes", "6.4")
        true = sample(content)
        expect(digest == true, f"the meta of {entry} says that the sample of {name!r} is {digest}, it is {true}", "6.4")


@scenario("drive:hand-over-file")
def hands_over_a_file(stage: Stage) -> None:
    """A file stands in the queue whole, with a meta that says what it is; the trainer keeps its own."""
    client = stage.opened()
    for number, content in enumerate((b"", b"weights", FILES["big"])):
        path = stage.file(f"step_{number}.pt", content)
        stage.enqueue(client, path, f"step_{number}.pt", number, f"step_{number}.pt")
        stands = stage.run / "queue" / f"step_{number}.pt"
        expect(
            stands.is_file() and stands.read_bytes() == content, f"{stands.name} is not what was given", "5.1", stands
        )
        expect(not stands.is_symlink(), f"{stands.name} is a link", "5.1", stands)
        expect(path.is_file(), "the trainer's own file is gone: it keeps it", "5.1", path)
        expect(path.read_bytes() == content, "the trainer's own file has changed", "5.1", path)
        check_meta(stage, stands.name, "file", number, {"": content})
    target = stage.file("step_3.pt", b"linked")
    link = target.with_name("latest.pt")
    link.symlink_to(target)
    stage.enqueue(client, link, "step_3.pt", 3, "step_3.pt")
    stands = stage.run / "queue/step_3.pt"
    expect(not stands.is_symlink(), "a symbolic link was handed over as a link: it is followed", "5.1", stands)
    expect(stands.read_bytes() == b"linked", "what a symbolic link leads to is not what stands", "5.1", stands)
    expect(link.is_symlink() and target.exists(), "the trainer's own file or link has changed", "5.1", link)
    check_meta(stage, "step_3.pt", "file", 3, {"": b"linked"})
    orders = [folder.meta(stage.run, f"step_{n}.pt")["order"] for n in range(4)]
    expect(orders == sorted(set(orders)), f"the orders of four hand-overs are {orders}", "6.4")
    client.close()


@scenario("drive:hand-over-folder")
def hands_over_a_folder(stage: Stage) -> None:
    """A folder is handed over with all that is below it; links in it are followed."""
    client = stage.opened()
    for name, content in FILES.items():
        stage.file(f"checkpoint-5/{name}", content)
    target = stage.file("elsewhere", b"linked")
    path = stage.place / "ckpt" / "checkpoint-5"
    os.symlink(target, path / "link")
    for use in ("checkpoint-5", "checkpoint-5~2"):
        stage.enqueue(client, path, "checkpoint-5", 5, use)
        expected: dict[str, bytes] = {**FILES, "link": b"linked"}
        stands = stage.run / "queue" / use
        found = {name: content for name, content in folder.tree(stands).items() if content is not None}
        expect(found == expected, f"below {use} stand {sorted(found)}, or with other content", "5.1", stands)
        expect(not (stands / "link").is_symlink(), "a symbolic link was handed over as a link", "5.1", stands)
        check_meta(stage, use, "folder", 5, expected)
    client.close()


@scenario("drive:large")
def large(stage: Stage) -> None:
    """A file of 50 KB, alone and in a folder, that somebody else has handed over is what its meta's sample says."""
    hand = stage.hand.finished_run()
    contents: dict[str, dict[str, bytes]] = {"a_1.pt": {"": BIG}, "b_2": FILES}
    for entry, files in contents.items():
        items = [{"name": name, "size": len(data), "sample": sample(data)} for name, data in files.items()]
        hand.meta(entry, kind="file" if "" in files else "folder", files=items, size=sum(map(len, files.values())))
    (stage.run / "queue/.b_2").mkdir()
    for name, data in FILES.items():
        hand.write(f"queue/.b_2/{name}", data)
    os.rename(stage.run / "queue/.b_2", stage.run / "queue/b_2")
    hand.entry("a_1.pt", BIG)
    stage.handed_over |= contents.keys()
    client = stage.opened("eval")
    client.must(["best", "max", "acc", 0], "ruled")
    for _ in contents:
        answer = client.ask("take")
        _as_it_was(stage, contents, f"take was answered {' '.join(answer)!r}")
        expect(answer[0] == "taken", f"take was answered {' '.join(answer)!r} although an entry waits", "5.2")
        client.must(["outcome", "done", "acc", 1], "moved", "best", rule="5.3")
        _as_it_was(stage, contents, "the outcome done was asked for")
    client.close()


def _as_it_was(stage: Stage, contents: dict[str, dict[str, bytes]], when: str) -> None:
    for (entry, attempt), outcome in folder.outcomes(stage.run).items():
        found = (outcome.get("state"), outcome.get("reason"))
        samples = {name: sample(data) for name, data in contents[entry].items()}
        expect(
            found[0] == "done",
            f"{when}, and outcome {attempt} of {entry} is {found}, although its files have the samples {samples}",
            "6.4",
        )


@scenario("drive:names-used-again")
def names_used_again(stage: Stage) -> None:
    """A name that was used becomes X~2, X~3, with the mark before the suffix; a reserved name stays used."""
    client = stage.opened()
    stage.hand.meta("late.pt")
    stage.hand.entry("plain.pt", b"somebody else's")
    for name, uses in {
        "epoch_1.pt": ("epoch_1.pt", "epoch_1~2.pt", "epoch_1~3.pt"),
        "a.b": ("a.b", "a~2.b"),
        "step=3-v1.5": ("step=3-v1.5", "step=3-v1.5~2"),
        "modèle 1.pt": ("modèle 1.pt", "modèle 1~2.pt"),
        "-rf $x*.pt": ("-rf $x*.pt", "-rf $x*~2.pt"),
        "late.pt": ("late~2.pt",),
        "plain.pt": ("plain~2.pt",),
    }.items():
        for number, use in enumerate(uses):
            content = f"{name} {number}".encode()
            stage.enqueue(client, stage.file(f"file{number}", content), name, 1, use)
            stands = stage.run / "queue" / use
            expect(stands.read_bytes() == content, f"{use} is not what was handed over as it", "5.1", stands)
    other = (stage.run / "queue/plain.pt").read_bytes()
    expect(other == b"somebody else's", "the entry of a plain writer was replaced", "5.1", stage.run / "queue/plain.pt")
    left = "plain.pt.json" in folder.names(stage.run / "meta")
    expect(not left, "plain.pt, which a plain writer has put, has a meta about another file", "5.1")
    client.close()


@scenario("drive:finished")
def finished(stage: Stage) -> None:
    """FINISHED names the main session, stands before the end, and is obeyed."""
    client = stage.opened()
    stage.enqueue(client, stage.file("x", b"x"), "x_1.pt", 1)
    client.must(["finish"], "finished", rule="5.8")
    record = folder.finished(stage.run)
    expect(record.get("main_session") == 1, f"FINISHED says {record}", "6.6")
    expect(stage.read()["finished"] is True, "read says that FINISHED is not obeyed", "5.8")
    client.close()
    reading = stage.read()
    expect(reading["finished"] is True, "read says that FINISHED is not obeyed", "5.8")
    wanted = {"x_1.pt": {"place": "queue", "outcomes": {}}}
    expect(reading["entries"] == wanted, f"read says that the entries are {reading['entries']}", "5")


@scenario("drive:changed")
def changed(stage: Stage) -> None:
    """An entry that is not what its meta says is not evaluated; one that changes meanwhile has no score."""
    hand = stage.hand.finished_run()
    hand.meta("a_1.pt", step=1, files=[{"name": "", "size": 3, "sample": sample(b"abc")}], size=3)
    hand.entry("a_1.pt", b"abX")
    stage.handed_over.add("a_1.pt")
    client = stage.opened("eval")
    stage.wait("a_1.pt is given up", lambda: _looks(client.ask("take"), stage), "5.1")
    _all_changed(stage, "a_1.pt", 3)
    hand.meta("b_2.pt", step=2, files=[{"name": "", "size": 3, "sample": sample(b"abc")}], size=3)
    hand.entry("b_2.pt", b"abc")
    stage.handed_over.add("b_2.pt")
    _, _, path = stage.take(client)
    Path(path).write_bytes(b"longer than before")
    client.must(["outcome", "done", "acc", 1], "moved", "retry", rule="5.1")
    _all_changed(stage, "b_2.pt", 1)
    expect(not folder.lines(stage.run, "eval", 1), "a score of changed content was logged", "5.1")
    # What waits differs from its meta by our own hand; the check of the whole run is not to find that.
    stage.hand.write("retry/2/b_2.pt", b"abc")
    client.close()


def _looks(answer: list[str], stage: Stage) -> bool:
    expect(
        answer[0] in ("none", "over"),
        f"take was answered {' '.join(answer)!r} for content that is not its meta's",
        "5.1",
    )
    return "a_1.pt" in folder.names(stage.run / "failed")


def _all_changed(stage: Stage, entry: str, attempts: int) -> None:
    for attempt in range(1, attempts + 1):
        outcome = folder.outcome(stage.run, entry, attempt)
        found = (outcome.get("state"), outcome.get("reason"))
        expect(found == ("failed", "changed"), f"outcome {attempt} of {entry} is {found}", "5.1")
