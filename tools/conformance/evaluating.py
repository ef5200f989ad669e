"""Scenarios of an evaluator: claims, outcomes and where they lead, best/, recovery (protocol.md 5.2 to 5.9)."""

from __future__ import annotations

import os
import time

import folder
from driven import Driven, expect
from stage import Stage, scenario

LONG = b"x" * 201
REFUSED = (LONG, b"a\x01b", b"tab\there", b"line\nbreak", b"\xff\xfe.pt", b".hidden.pt", b"half.pt.tmp", b"del\x7f")
"""Names in the queue that are no entries."""
ODD = (
    "y" * 200,
    "X.1.json",
    "-rf",
    "*",
    "$(id)",
    'a "b" c.pt',
    "it's.pt",
    "back\\slash.pt",
    " lead",
    "trail ",
    "modèle.pt",
    "a;b&c|d",
    "~",
    "#1",
)
"""Names that are."""


def settle(stage: Stage, client: Driven, score: object = 1, place: str = "best") -> str:
    """Take one entry and be done with it; returns its name."""
    entry, _, _ = stage.take(client)
    client.must(["outcome", "done", "acc", score], "moved", place, rule="5.3")
    return entry


def check_outcome(stage: Stage, entry: str, attempt: int, **wanted: object) -> None:
    """An outcome says what it has to."""
    outcome = folder.outcome(stage.run, entry, attempt)
    for key, value in wanted.items():
        found = outcome.get(key)
        expect(found == value, f"outcome {attempt} of {entry} says {key} {found!r}, expected {value!r}", "6.5")


@scenario("drive:evaluate")
def evaluates(stage: Stage) -> None:
    """An entry is claimed by one rename, gets its outcome, its line, its place; then the evaluator may end."""
    hand = stage.hand.finished_run()
    hand.meta("x_7.pt", step=7, main_session=1, order=99)
    hand.entry("x_7.pt", b"seven")
    hand.entry("plain_8.pt", b"eight")
    client = stage.opened("eval")
    client.must(["best", "max", "acc", 2], "ruled", rule="5.7")
    rule = folder.record(stage.run / "best.json")
    found = (rule.get("mode"), rule.get("tag"), rule.get("keep"))
    expect(found == ("max", "acc", 2), f"best.json says {found}", "6.6")
    contents = {"x_7.pt": b"seven", "plain_8.pt": b"eight"}
    for score in (1, 2):
        entry, attempt, path = stage.take(client)
        stage.handed_over.add(entry)
        expect(attempt == 1, f"the attempt is {attempt}", "5.2")
        claimed = f"claimed/eval.1/1/{entry}"
        expect(path == stage.run / claimed, f"the entry stands at {path}", "5.2")
        expect(path.read_bytes() == contents.pop(entry), f"{entry} is not what was handed over", "5.2", path)
        client.must(["outcome", "done", "acc", score, "loss", "NaN"], "moved", "best", rule="5.3")
        lock = folder.lock(stage.run, "eval", 1)
        facts = {"state": "done", "job": "eval", "session": 1, "token": lock["token"], "main_session": 1}
        facts |= {"step": 7, "order": 99} if entry == "x_7.pt" else {"step": 8}
        check_outcome(stage, entry, 1, scores={"acc": score, "loss": "NaN"}, **facts)
        logged = folder.lines(stage.run, "eval", 1)
        expect(logged, f"{entry} is done, and no line of its points was logged", "5.9", stage.run / "scalars")
        line = logged[-1]
        expect("time" in line, f"the line of {entry} has no time: {line}", "6.8", stage.run / "scalars")
        line.pop("time")
        wanted = {"step": facts["step"], "acc": score, "loss": "NaN", "entry": f"{entry}.1"}
        expect(line == wanted, f"the line of {entry} is {line}", "5.9")
    stage.over(client)
    client.close()
    reading = stage.read()
    expect(reading["points"].get("acc", []) != [], "read gives no points of the outcomes", "5.9")
    expect(len(reading["points"]["acc"]) == 2, f"read says that acc is {reading['points']['acc']}", "5.9")


@scenario("drive:no-rule")
def no_rule(stage: Stage) -> None:
    """Without a rule what is done is removed."""
    stage.hand.finished_run().entry("x_1.pt")
    stage.handed_over.add("x_1.pt")
    client = stage.opened("eval")
    settle(stage, client, place="trash")
    client.close()
    expect(not folder.places(stage.run), f"these are left: {folder.places(stage.run)}", "5.3")


@scenario("drive:fails")
def fails(stage: Stage) -> None:
    """What fails is tried again, and given up at the third failure; what is returned does not count."""
    stage.hand.finished_run().entry("x_1.pt")
    stage.handed_over.add("x_1.pt")
    client = stage.opened("eval")
    expected = ["failed", "returned", "failed", "returned", "failed"]
    for attempt, state in enumerate(expected, 1):
        entry, k, path = stage.take(client)
        expect((entry, k) == ("x_1.pt", attempt), f"{entry} was taken as attempt {k}, expected {attempt}", "5.3")
        expect(path == stage.run / f"claimed/eval.1/{attempt}/x_1.pt", f"it stands at {path}", "5.2")
        command = ["outcome", state] + ([f"reason {attempt}"] if state == "failed" else [])
        client.must(command, "moved", "failed" if attempt == 5 else "retry", rule="5.3")
        check_outcome(stage, "x_1.pt", attempt, state=state)
        if state == "failed":
            check_outcome(stage, "x_1.pt", attempt, reason=f"reason {attempt}")
    stands = folder.places(stage.run)
    expect(stands == {"x_1.pt": ["failed/x_1.pt"]}, f"it stands at {stands}", "5.3")
    client.close()
    reading = stage.read()["entries"]["x_1.pt"]
    wanted = {"place": "failed", "outcomes": {str(k): state for k, state in enumerate(expected, 1)}}
    expect(reading == wanted, f"read says {reading}", "5")


@scenario("drive:skips")
def skips(stage: Stage) -> None:
    """What is skipped goes, with an outcome; what is held when the session ends is given back."""
    hand = stage.hand.finished_run()
    hand.entry("x_1.pt")
    client = stage.opened("eval")
    stage.take(client)
    client.must(["outcome", "skipped", "too old"], "moved", "trash", rule="5.3")
    check_outcome(stage, "x_1.pt", 1, state="skipped", reason="too old")
    hand.entry("y_2.pt")
    stage.handed_over |= {"x_1.pt", "y_2.pt"}
    stage.take(client)
    client.close()
    check_outcome(stage, "y_2.pt", 1, state="returned")
    stands = folder.places(stage.run)
    expect(stands == {"y_2.pt": ["retry/2/y_2.pt"]}, f"after the end these stand: {stands}", "5.4")


@scenario("drive:best")
def best(stage: Stage) -> None:
    """best/ keeps the best: NaN is the worst, then the earlier step, then the name; without a score nothing goes."""
    for mode, tags in (("max", ("2", "3", "NaN", "3", "3", "1")), ("min", ("2", "-3", "Infinity", "-3", "-3", "3"))):
        hand = stage.hand.finished_run()
        scores = dict(zip(("a_1", "b_5", "c_1", "d_4", "a_4", "e_9"), tags, strict=True))
        for name in (*scores, "other_1"):
            hand.entry(name)
        client = stage.opened("eval")
        client.must(["best", mode, "acc", 2], "ruled", rule="5.7")
        for _ in range(len(scores) + 1):
            entry, _, _ = stage.take(client)
            pair = ("acc", scores[entry]) if entry in scores else ("loss", 1)
            client.must(["outcome", "done", *pair], "moved", "best", rule="5.3")
        kept = folder.names(stage.run / "best")
        expect(kept == ["a_4", "d_4", "other_1"], f"best/ holds {kept}, expected a_4, d_4 and other_1", "5.7")
        for other in (
            ["best", mode, "acc", 3],
            ["best", mode, "loss", 2],
            ["best", {"max": "min", "min": "max"}[mode], "acc", 2],
        ):
            client.must(other, "refused", rule="5.7")
        client.must(["best", mode, "acc", 2], "ruled", rule="5.7")
        client.close()
        stage.settle()
        stage.run.rename(stage.run.with_name(f"r-{mode}"))
        stage.forget()
    stage.unfit = True


@scenario("drive:over")
def over(stage: Stage) -> None:
    """An evaluator ends when FINISHED is obeyed, nothing waits and nobody holds or brings anything; not before."""
    hand = stage.hand.make()
    hand.open()
    client = stage.opened("eval")
    looks(client, "main runs, and FINISHED is not there")
    hand.write("queue/FINISHED", b"")
    looks(client, "FINISHED is empty, and main runs")
    hand.finish(2)
    looks(client, "FINISHED names another session than the highest")
    hand.finish(1)
    hand.open("eval-b")
    hand.claim("eval-b", 1, 1, "held.pt")
    looks(client, "another evaluator holds a claim")
    hand.outcome("held.pt", 1, "skipped", "eval-b", 1)
    (stage.run / "claimed/eval-b.1/1/held.pt").unlink()
    hand.end("eval-b")
    hand.open("watch", hands_over=True)
    looks(client, "a side job that hands over is open")
    hand.end("watch")
    stage.over(client)
    client.close()


@scenario("drive:over-after-main")
def over_after_main(stage: Stage) -> None:
    """Where main finished an evaluator ends without FINISHED; where it crashed it lingers."""
    hand = stage.hand.make()
    hand.open()
    hand.end(status="crashed", reason="expired")
    client = stage.opened("eval")
    looks(client, "main has crashed just now")
    hand.open(session=2)
    hand.end(session=2)
    stage.over(client)
    client.close()


def looks(client: Driven, why: str) -> None:
    """Three looks, none of which may find that it is over."""
    for _ in range(3):
        answer = client.ask("take")
        expect(answer == ["none"], f"take was answered {' '.join(answer)!r} although {why}", "5.8")


@scenario("drive:hostile-names")
def hostile_names(stage: Stage) -> None:
    """Names that are no entries are left alone; odd ones that are entries are evaluated like others."""
    hand = stage.hand.finished_run()
    queue = os.fsencode(stage.run / "queue")
    for refused in REFUSED:
        with open(os.path.join(queue, refused), "wb") as file:
            file.write(b"x")
    for name in ODD:
        hand.entry(name, name.encode())
    client = stage.opened("eval")
    client.must(["best", "max", "acc", 0], "ruled")
    for _ in ODD:
        entry, _, path = stage.take(client)
        expect(path.read_bytes() == entry.encode(), f"{entry!r} is another file", "5.2", path)
        client.must(["outcome", "done", "acc", 1], "moved", "best", rule="5.3")
    for _ in range(2):
        answer = client.ask("take")
        expect(answer[0] in ("none", "over"), f"take was answered {answer}", "3")
    left = sorted(os.listdir(queue))
    expect(left == sorted(REFUSED), f"queue/ holds {left}", "3", stage.run / "queue")
    kept = folder.names(stage.run / "best")
    expect(kept == sorted(ODD), f"best/ holds {kept}", "5.3")
    client.close()


@scenario("drive:plain-name-again")
def plain_name_again(stage: Stage) -> None:
    """A plain writer uses a name again: the second file is X~2, whoever evaluated the first."""
    hand = stage.hand.finished_run()
    hand.open("eval-b")
    hand.outcome("x_1.pt", 1, "done", "eval-b", 1, scores={"acc": 5}, step=1, main_session=1)
    hand.end("eval-b")
    client = stage.opened("eval")
    client.must(["best", "max", "acc", 0], "ruled")
    for use in ("x_1~2.pt", "x_1~3.pt"):
        hand.entry("x_1.pt", use.encode())
        entry, attempt, path = stage.take(client)
        expect((entry, attempt) == (use, 1), f"it was taken as {entry}, attempt {attempt}, expected {use}", "5.2")
        expect(path.read_bytes() == use.encode(), f"{use} is another file", "5.2", path)
        folder.meta(stage.run, use)
        client.must(["outcome", "done", "acc", 1], "moved", "best", rule="5.3")
        check_outcome(stage, use, 1, state="done", step=1)
    check_outcome(stage, "x_1.pt", 1, job="eval-b")
    hand.entry("z_1.pt", b"first")
    settle(stage, client)
    hand.entry("z_1.pt", b"second")
    expect(settle(stage, client) == "z_1~2.pt", "a second file has the claim path of the first", "5.2")
    client.close()


@scenario("drive:outcome-stands")
def outcome_stands(stage: Stage) -> None:
    """An outcome that stands is never replaced; where it is about another claim, this one gets a new name."""
    hand = stage.hand.finished_run()
    hand.open("eval-b")
    hand.end("eval-b")
    client = stage.opened("eval")
    client.must(["best", "max", "acc", 0], "ruled")
    hand.entry("x_1.pt")
    stage.take(client)
    hand.outcome("x_1.pt", 1, "failed", "eval", 1, reason="somebody was faster")
    client.must(["outcome", "done", "acc", 1], "moved", "retry", rule="5.3")
    check_outcome(stage, "x_1.pt", 1, state="failed", reason="somebody was faster")
    expect(not folder.lines(stage.run, "eval", 1), "the points of an outcome that does not stand were logged", "5.9")
    settle(stage, client)
    hand.entry("y_1.pt")
    stage.take(client)
    hand.outcome("y_1.pt", 1, "done", "eval-b", 1, scores={"acc": 3})
    client.must(["outcome", "done", "acc", 1], "moved", "best", rule="5.2")
    check_outcome(stage, "y_1.pt", 1, job="eval-b")
    check_outcome(stage, "y_1~2.pt", 1, job="eval", session=1, state="done")
    stands = folder.places(stage.run)
    expect(stands.get("y_1~2.pt") == ["best/y_1~2.pt"], f"these stand: {stands}", "5.2")
    client.close()


@scenario("drive:linked")
def linked(stage: Stage) -> None:
    """What is kept is the run's own: an entry with another link is copied into best/."""
    hand = stage.hand.finished_run()
    own = stage.file("x_1.pt", b"weights")
    os.link(own, stage.run / "queue/x_1.pt")
    for name in ("f_2/a", "f_2/b"):
        (stage.run / "queue/.f_2").mkdir(exist_ok=True)
        os.link(stage.file(name, name.encode()), stage.run / "queue" / f".{name}")
    os.rename(stage.run / "queue/.f_2", stage.run / "queue/f_2")
    hand.entry("y_3.pt", b"moved")
    client = stage.opened("eval")
    client.must(["best", "max", "acc", 0], "ruled")
    for _ in range(3):
        settle(stage, client)
    client.close()
    own.write_bytes(b"written over in place")
    kept = {name: content for name, content in folder.tree(stage.run / "best").items() if content is not None}
    wanted = {"x_1.pt": b"weights", "f_2/a": b"f_2/a", "f_2/b": b"f_2/b", "y_3.pt": b"moved"}
    expect(kept == wanted, f"best/ holds {kept}", "5.6", stage.run / "best")
    links = {name: (stage.run / "best" / name).stat().st_nlink for name in kept}
    expect(set(links.values()) == {1}, f"the files of best/ have these links: {links}", "5.6", stage.run / "best")


@scenario("drive:recovers")
def recovers(stage: Stage) -> None:
    """Claims of closed sessions come home: lost where no outcome stands, else as the one that stands says."""
    hand = stage.hand.finished_run()
    hand.write("best.json", {"protocol": "1.0", "mode": "max", "tag": "acc", "keep": 0})
    hand.open("eval-b")
    for name in ("lost_1", "done_2", "failed_3"):
        hand.claim("eval-b", 1, 1, name)
    hand.outcome("done_2", 1, "done", "eval-b", 1, scores={"acc": 1}, step=2)
    hand.outcome("failed_3", 1, "failed", "eval-b", 1)
    hand.claim("eval-b", 1, 4, "third_4")
    for attempt, state in enumerate(("failed", "returned", "failed", "failed"), 1):
        hand.outcome("third_4", attempt, state, "eval-b", 1)
    hand.end("eval-b", status="crashed", reason="expired")
    stage.handed_over |= {"lost_1", "done_2", "failed_3", "third_4"}
    client = stage.opened("eval")
    for _ in range(2):
        entry, attempt, _ = stage.take(client)
        expect(entry in ("lost_1", "failed_3"), f"{entry} was taken", "5.5")
        expect(attempt == 2, f"{entry} was taken as attempt {attempt}", "5.5")
        client.must(["outcome", "done", "acc", 2], "moved", "best", rule="5.3")
    check_outcome(stage, "lost_1", 1, state="lost", job="eval-b", session=1)
    stage.over(client)
    stands = folder.places(stage.run)
    wanted = {name: [f"best/{name}"] for name in ("lost_1", "done_2", "failed_3")} | {"third_4": ["failed/third_4"]}
    expect(stands == wanted, f"these stand: {stands}", "5.5")
    client.close()


@scenario("drive:recovers-expired")
def recovers_expired(stage: Stage) -> None:
    """A claim of a session of another host is recovered once that one has expired, and not before."""
    hand = stage.hand.finished_run()
    hand.open("eval-b", timeout=3)
    hand.claim("eval-b", 1, 1, "x_1.pt")
    stage.handed_over.add("x_1.pt")
    client = stage.opened("eval")
    began = time.monotonic()
    entry, attempt, _ = stage.take(client)
    took = time.monotonic() - began
    expect(took >= 3, f"a session was closed after {took:.1f} s, although its T is 3 s", "4.4")
    expect((entry, attempt) == ("x_1.pt", 2), f"{entry} was taken as attempt {attempt}", "5.5")
    end = folder.end(stage.run, "eval-b", 1)
    expect((end.get("status"), end.get("reason")) == ("crashed", "expired"), f"its end is {end}", "4.4")
    check_outcome(stage, "x_1.pt", 1, state="lost", job="eval-b", session=1)
    client.close()


@scenario("drive:adopts")
def adopts(stage: Stage) -> None:
    """An evaluator that was closed by a false verdict adopts its claim, and its outcome counts."""
    hand = stage.hand.finished_run()
    hand.entry("x_1.pt")
    stage.handed_over.add("x_1.pt")
    client = stage.opened("eval", 3)
    client.must(["best", "max", "acc", 0], "ruled")
    stage.take(client)
    hand.close("eval", 1)
    client.must(["beat"], "beaten", rule="4.6")
    stage.wait(
        "the claim is adopted", lambda: "claimed/eval.2/2/x_1.pt" in folder.places(stage.run).get("x_1.pt", ()), "5.4"
    )
    check_outcome(stage, "x_1.pt", 1, state="returned", job="eval", session=1)
    client.must(["outcome", "done", "acc", 1], "moved", "best", rule="5.4")
    check_outcome(stage, "x_1.pt", 2, state="done", job="eval", session=2)
    client.close()
    points = stage.read()["points"].get("acc")
    expect(points == [[1, 1]], f"read says that acc is {points}", "5.9")


@scenario("drive:fenced-evaluator")
def fenced_evaluator(stage: Stage) -> None:
    """An evaluator that was taken over puts no outcome and moves nothing."""
    hand = stage.hand.finished_run()
    hand.entry("x_1.pt")
    stage.handed_over.add("x_1.pt")
    client = stage.opened("eval")
    stage.take(client)
    hand.close("eval", 1)
    hand.open("eval", 2)
    hand.outcome("x_1.pt", 1, "lost", "eval", 1)
    (stage.run / "retry/2").mkdir(exist_ok=True)
    (stage.run / "claimed/eval.1/1/x_1.pt").rename(stage.run / "retry/2/x_1.pt")
    for command in (["outcome", "done", "acc", 1], ["take"], ["best", "max", "acc", 1]):
        client.must(command, "fenced", rule="4.6")
    client.must(["close", "finished"], "fenced", rule="4.6")
    stands = folder.places(stage.run)
    expect(stands == {"x_1.pt": ["retry/2/x_1.pt"]}, f"these stand: {stands}", "4.6")
    expect(not folder.lines(stage.run, "eval", 1), "a fenced evaluator has logged", "4.6")
