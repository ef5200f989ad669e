"""Scenarios of two kinds of clients on one run: the one that is judged, and fsrun's own (or ``--against``)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import folder
from driven import LIMIT, Driven, expect
from queueing import BIG
from stage import Stage, read, scenario

ENTRIES = 40


def train(stage: Stage, client: Driven, entries: int = 4) -> dict[str, bytes]:
    """A small training: logs, hands over, says that this was all; returns entry -> content."""
    found = {}
    for step in range(1, entries + 1):
        client.must(["log", step, 100 + step, "train/loss", 1 / step, "lr", "NaN"], "logged")
        content = BIG + f"weights of {step}".encode()
        found[stage.enqueue(client, stage.file(f"step_{step}.pt", content), "model.pt", step)] = content
    client.must(["finish"], "finished", rule="5.8")
    client.close()
    return found


def evaluate(stage: Stage, client: Driven, contents: dict[str, bytes]) -> None:
    """Evaluate until it is over; the score is the step's number."""
    client.must(["best", "max", "acc", 2], "ruled", rule="5.7")
    for _ in contents:
        entry, _, path = stage.take(client)
        expect(path.read_bytes() == contents[entry], f"{entry} is not what was handed over", "5.1", path)
        client.must(["outcome", "done", "acc", contents[entry].split()[-1].decode()], "moved", "best", rule="5.3")
    stage.over(client)
    client.close()
    kept = sorted((stage.run / "best" / name).read_bytes() for name in folder.names(stage.run / "best"))
    wanted = sorted(contents.values(), key=lambda c: int(c.split()[-1]))[-2:]
    expect(kept == sorted(wanted), f"best/ holds {[content[-12:] for content in kept]}", "5.7")


@scenario("python:evaluates-for-client")
def python_evaluates(stage: Stage) -> None:
    """The client trains, the other side evaluates, and both read the same."""
    contents = train(stage, stage.opened())
    other = stage.other()
    other.must(["open", "eval", 30], "opened", 1)
    evaluate(stage, other, contents)
    stage.agree()


@scenario("python:trains-for-client")
def python_trains(stage: Stage) -> None:
    """The other side trains, the client evaluates, and both read the same."""
    other = stage.other()
    other.must(["open", "main", 30], "opened", 1)
    evaluate_after = train(stage, other)
    evaluate(stage, stage.opened("eval"), evaluate_after)
    stage.agree()


@scenario("python:contend")
def contend(stage: Stage) -> None:
    """Both sides want one job all the time: it has one owner at any time, and every line of each counts."""
    held: list[tuple[float, float, int]] = []
    lock = threading.Lock()
    starts: list[Callable[[], Driven]] = [stage.client, stage.other, stage.client, stage.other]
    with ThreadPoolExecutor(len(starts)) as pool:
        for future in [pool.submit(_want, stage, start, held, lock) for start in starts]:
            future.result()
    held.sort()
    for (_, until, session), (since, _, other) in pairwise(held):
        expect(until <= since, f"sessions {session} and {other} were held at the same time", "9, 1")
    sessions = [session for _, _, session in held]
    expect(sessions == list(range(1, len(sessions) + 1)), f"the sessions held were {sessions}", "4")
    expected = [[session, session] for session in sessions]
    found = read(stage.words, stage.run, stage.environ)["points"].get("a")
    expect(found == expected, f"read says that the points are {found}", "8.3")


def _want(
    stage: Stage, start: Callable[[], Driven], held: list[tuple[float, float, int]], lock: threading.Lock
) -> None:
    """Hold the job twice, for a moment each."""
    done = 0
    until = time.monotonic() + LIMIT
    while done < 2:
        expect(time.monotonic() < until, f"a job that is free again and again could not be had in {LIMIT:g} s", "4.4")
        driven = start()
        answer = driven.ask("open", "main", 6)
        if answer[0] == "held":
            driven.end_input()
            driven.leave()
            time.sleep(0.1)
            continue
        expect(answer[0] == "opened", f"open was answered {' '.join(answer)!r}", "4.1")
        since, session = time.monotonic(), int(answer[1])
        driven.must(["log", session, session, "a", session], "logged")
        time.sleep(0.1)
        with lock:
            held.append((since, time.monotonic(), session))
        driven.close()
        done += 1


@scenario("python:evaluators")
def evaluators(stage: Stage) -> None:
    """Evaluators of both kinds on one queue: each entry is done once, and the best ones are kept."""
    hand = stage.hand.finished_run()
    scores = list(range(ENTRIES))
    stage.random.shuffle(scores)
    for score in scores:
        hand.entry(f"step_{score}.pt", str(score).encode())
        stage.handed_over.add(f"step_{score}.pt")
    done: list[str] = []
    starts = {"eval-a": stage.client, "eval-b": stage.other, "eval-c": stage.client, "eval-d": stage.other}
    with ThreadPoolExecutor(len(starts)) as pool:
        for future in [pool.submit(_work, start(), job, done) for job, start in starts.items()]:
            future.result()
    expect(sorted(done) == sorted(stage.handed_over), f"these were done: {sorted(done)}", "9, 6")
    outcomes = folder.outcomes(stage.run)
    states = [outcome["state"] for outcome in outcomes.values()]
    expect(states == ["done"] * ENTRIES, f"the outcomes are {states}", "5.3")
    kept = folder.names(stage.run / "best")
    wanted = sorted(f"step_{score}.pt" for score in range(ENTRIES - 3, ENTRIES))
    expect(kept == wanted, f"best/ holds {kept}", "5.7")
    stage.agree()


def _work(driven: Driven, job: str, done: list[str]) -> None:
    driven.must(["open", job, 30], "opened", 1, rule="4.1")
    driven.must(["best", "max", "acc", 3], "ruled", rule="5.7")
    until = time.monotonic() + 2 * LIMIT
    while (answer := driven.ask("take"))[0] != "over":
        expect(time.monotonic() < until, "it does not come to an end", "5.8")
        if answer[0] == "taken":
            # It is the file that tells the score: another file under this name would have another one.
            with open(answer[3], "rb") as file:
                score = file.read().decode()
            expect(answer[1] == f"step_{score}.pt", f"{answer[1]} holds the entry of {score}", "5.2")
            driven.must(["outcome", "done", "acc", score], "moved", "best", rule="5.3")
            done.append(answer[1])
        else:
            expect(answer == ["none"], f"take was answered {' '.join(answer)!r}")
            time.sleep(0.1)
    driven.close()


@scenario("python:daemon")
def daemon(stage: Stage) -> None:
    """The daemon of fsrun cleans up after clients that were killed: sessions, claims, temporaries."""
    trainer = stage.opened(timeout=600)
    trainer.must(["log", 1, 1, "a", 1], "logged")
    entry = stage.enqueue(trainer, stage.file("x", b"x"), "x_1.pt", 1)
    evaluator = stage.opened("eval", 600)
    stage.take(evaluator)
    stage.kill(trainer)
    stage.kill(evaluator)
    said = stage.fsrun("daemon", str(stage.place / "runs"), "--once")
    for job in ("main", "eval"):
        expect(folder.job_files(stage.run, job, 1, "end"), f"{job} is not closed; the daemon said: {said}", "4.4")
        end = folder.end(stage.run, job, 1)
        expect(end.get("reason") == "proved dead", f"the end of {job} says {end.get('reason')!r}", "6.1")
    stands = folder.places(stage.run)
    expect(stands == {entry: [f"retry/2/{entry}"]}, f"these stand: {stands}", "5.5")
    left = folder.temporaries(stage.run)
    expect(not left, f"these are left: {left}; the daemon said: {said}", "7")
    evaluator = stage.opened("eval", session=2)
    taken = stage.take(evaluator)[:2]
    expect(taken == (entry, 2), f"{taken} was taken", "5.5")
    evaluator.must(["outcome", "done", "acc", 1], "moved", "trash", rule="5.3")
    evaluator.close()
    stage.agree()
