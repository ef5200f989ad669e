"""Scenarios of a trainer: sessions that are opened, beat, log and are closed (protocol.md 4, 6)."""

from __future__ import annotations

import json
import os
import socket
import time

import folder
from driven import LIMIT, expect
from stage import Stage, scenario

FOLDERS = ("jobs", "scalars", "evals", "queue", "meta", "claimed", "retry", "best", "failed", "trash")
BIG = 2**53 + 1


def beats(stage: Stage, job: str = "main", session: int = 1) -> list[int]:
    """The counts of the beats that stand of a session."""
    return [file.count for file in folder.job_files(stage.run, job, session, "beat")]


@scenario("drive:open")
def opened(stage: Stage) -> None:
    """A trainer opens a new run: its folders, a whole lock, a beat with the lock's token."""
    client = stage.opened()
    for name in FOLDERS:
        expect((stage.run / name).is_dir(), f"the folder {name}/ is missing", "2", stage.run)
    lock = folder.lock(stage.run, "main", 1)
    wanted = {"job": "main", "session": 1, "timeout": 30, "fence": None}
    for key, value in wanted.items():
        expect(lock.get(key) == value, f"the lock says {key} {lock.get(key)!r}, expected {value!r}", "6.2")
    expect(str(lock.get("protocol", "")).startswith("1."), f"the lock says protocol {lock.get('protocol')!r}", "6.2")
    holder = lock.get("holder") or {}
    expect(holder.get("host") == socket.gethostname(), f"the holder's host is {holder.get('host')!r}", "6.1")
    pid = holder.get("pid")
    expect(isinstance(pid, int) and _group(pid) == client.pid, f"the holder's pid {pid!r} is no process of it", "6.1")
    mine = folder.job_files(stage.run, "main", 1, "beat")
    expect([b.token for b in mine] == [lock.get("token")], f"the beats are {[b.name for b in mine]}", "4.1")
    client.close()
    expect(not folder.job_files(stage.run, kind="beat"), "the beat stands after the end", "4.3", stage.run / "jobs")


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


@scenario("drive:log")
def logs(stage: Stage) -> None:
    """What is logged stands in the log, one line a call, once it was answered."""
    client = stage.opened()
    expected = []
    for step in range(5):
        client.must(["log", step, f"1764447005.{step}", "train/loss", 0.5 / (step + 1), "lr", "3e-4"], "logged")
        expected.append(
            {"step": step, "time": float(f"1764447005.{step}"), "train/loss": 0.5 / (step + 1), "lr": 0.0003}
        )
        found = folder.lines(stage.run, "main", 1)
        expect(found == expected, f"after {step + 1} answers the log holds {found}", "6.8")
    first = (stage.run / "scalars/main.1.jsonl").read_bytes().split(b"\n")[0]
    expect(list(json.loads(first))[:2] == ["step", "time"], f"step and time do not come first: {first!r}", "6.8")
    client.close()
    end = folder.end(stage.run, "main", 1)
    expect(end.get("status") == "finished", f"the end says {end.get('status')!r}", "6.3")
    expect(end.get("token") == folder.lock(stage.run, "main", 1)["token"], "the end has not the lock's token", "6.3")
    size = (stage.run / "scalars/main.1.jsonl").stat().st_size
    stated = end.get("sizes", {}).get("scalars/main.1.jsonl", size)
    expect(stated == size, f"the end says that the log has {stated} bytes, it has {size}", "6.3")
    points = stage.read()["points"]
    expect(len(points.get("train/loss", ())) == 5, f"read says that the points are {points}", "8.3")


@scenario("drive:values")
def values(stage: Stage) -> None:
    """Words, integers past 2^53, negative steps and odd tags are logged as they are."""
    client = stage.opened()
    odd = ['a "quoted" tag', "back\\slash", "modèle/größe", "a b", "$HOME", "*", "-n", "100%d"]
    pairs = {"nan": "NaN", "inf": "Infinity", "ninf": "-Infinity", "big": BIG, "tiny": "1e-300", "zero": "-0.0"}
    client.must(["log", -5, "0.25", *(field for pair in pairs.items() for field in pair)], "logged", rule="6.8")
    client.must(["log", 2**62, "1", *(field for tag in odd for field in (tag, 1))], "logged", rule="6.8")
    logged = folder.lines(stage.run, "main", 1)
    expect(len(logged) == 2, f"after two answers the log holds {logged}", "6.8", stage.run / "scalars")
    first, second = logged
    wanted = {"step": -5, "time": 0.25, **pairs, "tiny": 1e-300, "zero": -0.0}
    expect(first == wanted, f"the line holds {first}", "6.8")
    expect(second == {"step": 2**62, "time": 1, **dict.fromkeys(odd, 1)}, f"the line holds {second}", "6.8")
    client.close()
    points = stage.read()["points"]
    for tag, value in {"nan": "NaN", "inf": "Infinity", "ninf": "-Infinity"}.items():
        expect(points.get(tag) == [[-5, value]], f"read says that {tag} is {points.get(tag)}", "6")
    big = points.get("big", [[None, 0]])
    expect(float(big[0][1]) == float(BIG), f"read says that big is {big}", "6.8")
    expect(all(points.get(tag) == [[2**62, 1]] for tag in odd), f"read says that the points are {points}", "6.8")


@scenario("drive:close-failed")
def closes_as_failed(stage: Stage) -> None:
    """The status and the reason of the end are those of ``close``."""
    stage.opened().close("failed", 'out of memory on "node7"')
    end = folder.end(stage.run, "main", 1)
    found = (end.get("status"), end.get("reason"))
    expect(found == ("failed", 'out of memory on "node7"'), f"the end says {found}", "4.8")


@scenario("drive:input-ended")
def input_ends(stage: Stage) -> None:
    """The end of the input closes the session as failed; half a command is none."""
    client = stage.opened()
    client.must(["log", 1, 1, "a", 1], "logged")
    client.send_half("log", 2, 2, "a", 2)
    client.end_input()
    client.leave()
    end = folder.end(stage.run, "main", 1)
    expect((end.get("status"), end.get("reason")) == ("failed", "input ended"), f"the end is {end}", "4.3")
    expect(not folder.job_files(stage.run, kind="beat"), "the beat stands after the end", "4.3", stage.run / "jobs")
    expect(len(folder.lines(stage.run, "main", 1)) == 1, "a command without its newline was obeyed")


@scenario("drive:beat")
def beats_when_told(stage: Stage) -> None:
    """``beat`` answers with the number of the beat that stands, which rises."""
    client = stage.opened()
    before = -1
    for _ in range(3):
        said = int(client.must(["beat"], "beaten", rule="4.2")[1])
        expect(said >= max(before, 0), f"beat {said} came after beat {before}", "4.2")
        stands = beats(stage)
        expect(len(stands) == 1 and stands[0] >= said, f"beat {said} was answered, {stands} stands", "4.2")
        before = said
    client.close()


@scenario("drive:beats-alone")
def beats_alone(stage: Stage) -> None:
    """An idle holder beats every T/6 by itself, and not one beat longer than its process lives."""
    client = stage.opened(timeout=3)
    began = last = time.monotonic()
    seen = {*beats(stage)}
    longest = 0.0
    while time.monotonic() - began < 4:
        found = beats(stage)
        expect(len(found) <= 1, f"several beats of one session stand: {found}", "9, 2")
        if {*found} - seen:
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
            seen |= {*found}
        time.sleep(0.01)
    longest = max(longest, time.monotonic() - last)
    expect(longest < 2, f"the beat stood still for {longest:.1f} s of T = 3 s", "4.2")
    expect(len(seen) >= 4, f"{len(seen)} beats in 4 s, although there is one every 0.5 s", "4.2")
    stage.kill(client)
    time.sleep(1.2)
    stands = folder.job_files(stage.run, kind="beat")
    time.sleep(1.3)
    expect(folder.job_files(stage.run, kind="beat") == stands, "a helper beats for a process that is dead", "4.2")


@scenario("drive:resume")
def resumes(stage: Stage) -> None:
    """A second session opens behind the end of the first, fences its log, and FINISHED goes."""
    client = stage.opened()
    for step in range(3):
        client.must(["log", step, step, "a", step], "logged")
    client.must(["finish"], "finished", rule="5.8")
    client.close("failed", "preempted")
    size = (stage.run / "scalars/main.1.jsonl").stat().st_size
    client = stage.opened(session=2)
    lock = folder.lock(stage.run, "main", 2)
    fence = lock.get("fence") or {}
    expect(fence.get("scalars/main.1.jsonl") == size, f"the fence is {lock.get('fence')}, the log has {size}", "4.7")
    expect(not lock.get("continues"), "another process says that it continues", "4.6")
    stage.wait("FINISHED of session 1 is gone", lambda: "FINISHED" not in folder.names(stage.run / "queue"), "5.8")
    client.must(["log", 2, 7, "a", 20], "logged")
    entry = stage.enqueue(client, stage.file("x", b"x"), "x_2.pt", 2)
    said = folder.meta(stage.run, entry).get("main_session", 2)
    expect(said == 2, f"the meta of {entry} says main_session {said}, it is session 2 that hands over", "5.9, 6.4")
    client.close()
    expect(len(folder.lines(stage.run, "main", 1)) == 3, "the log of session 1 has changed", "7")
    expect([x["a"] for x in folder.lines(stage.run, "main", 2)] == [20], "session 2 logs into main.2.jsonl", "2")
    reading = stage.read()
    expect(reading["points"].get("a") == [[0, 0], [1, 1], [2, 20]], f"read says {reading['points']}", "8.3")
    wanted = {"session": 2, "status": "finished", "reason": None}
    expect(reading["jobs"].get("main") == wanted, f"read says that main is {reading['jobs'].get('main')}", "4.8")


@scenario("drive:side-job")
def side_job(stage: Stage) -> None:
    """A side job joins a run; where main was never opened it is refused, and makes nothing."""
    client = stage.client()
    client.must(["open", "eval", "30"], "refused", rule="4.1")
    client.end_input()
    expect(not stage.run.exists(), "the run folder was made by a side job", "4.1", stage.run)
    stage.hand.finished_run()
    client = stage.opened("eval-2")
    client.must(["log", 1, 1, "eval/acc", 0.5], "logged")
    client.close()
    expect(len(folder.lines(stage.run, "eval-2", 1)) == 1, "the line of the side job is missing", "2")


@scenario("drive:moved")
def moved(stage: Stage) -> None:
    """A run that is moved away is made anew by nobody."""
    client = stage.opened(timeout=3)
    client.must(["log", 1, 1, "a", 1], "logged")
    stage.run.rename(stage.run.with_name("elsewhere"))
    stage.unfit = True
    time.sleep(1.2)
    answer = client.ask("log", 2, 2, "a", 2)
    expect(answer[0] in ("error", "logged"), f"log was answered {' '.join(answer)!r} where the run is gone")
    client.ask("enqueue", stage.file("x_1.pt", b"x"), "x_1.pt", 1)
    client.end_input()
    client.leave()
    expect(not stage.run.exists(), "the run folder was made anew", "4.1", stage.run)


@scenario("drive:other-version")
def other_version(stage: Stage) -> None:
    """A run of another major version, or with words that nobody understands, is not written to: not one byte."""
    stage.unfit = True
    for words in ({"protocol": "2.0"}, {"must_understand": ["compressed logs"]}):
        for status in ("finished", None):
            stage.hand.make()
            stage.hand.open(**words)
            if status:
                stage.hand.end(status=status)
            before = folder.tree(stage.run)
            client = stage.client()
            client.must(["open", "main", "1"], "refused", rule="10", limit=LIMIT)
            client.end_input()
            client.leave()
            after = folder.tree(stage.run)
            changed = sorted(name for name in before.keys() | after.keys() if before.get(name, 0) != after.get(name, 0))
            expect(not changed, f"with {words} these were written: {changed}", "10", stage.run)
            expect(stage.read()["writable"] is False, f"with {words} read says that it is writable", "10")
            stage.run.rename(stage.run.with_name(f"r{time.monotonic_ns()}"))


@scenario("drive:errors")
def errors(stage: Stage) -> None:
    """What cannot be done is answered with an error, and does not end the session."""
    client = stage.opened()
    for command in (["fly"], ["outcome", "done", "a", "1"], ["enqueue", "/no/such/file", "x.pt", "1"]):
        answer = client.ask(*command)
        expect(answer[0] == "error" and len(answer) > 1, f"{command} was answered {answer}")
    for value in ("one", "0x10", "", "1,5"):
        if value:
            answer = client.ask("log", 1, 1, "a", value)
            expect(answer[0] == "error", f"the value {value!r} was answered {answer}", "6.8")
    client.must(["log", 1, 1, "a", 1], "logged")
    client.close()
    expect(folder.lines(stage.run, "main", 1) == [{"step": 1, "time": 1, "a": 1}], "an error left a line", "6.8")
    expect(not folder.places(stage.run), f"an error left {folder.places(stage.run)}", "5.1")
