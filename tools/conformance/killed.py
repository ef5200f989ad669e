"""Scenarios of clients that are killed at any moment, and of what is there afterwards (protocol.md 9, 11).

Each round one process is killed; in turn the client itself and fsrun bring in order what it left. Commands are written
without waiting for answers, so that the moment falls into the work and not into the time between two commands.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import folder
from driven import LIMIT, Driven, expect
from stage import Stage, scenario

ROUNDS = 10
TIMEOUT = 600.0
"""Of all sessions here: who is dead is proved dead, so nobody has to wait, and nobody expires on a busy machine."""


def killed(stage: Stage, driven: Driven, commands: list[list[object]]) -> list[list[str]]:
    """Write these commands, kill at some moment while they are obeyed; returns the answers that came."""
    for command in commands:
        driven.send(*command)
    # A moment in terms of answers, so that a slow client is not always killed before its first one.
    wanted = stage.random.randrange(len(commands))
    answers: list[list[str]] = []
    while len(answers) < wanted and (answer := driven.next_answer()) is not None:
        answers.append(answer)
    time.sleep(stage.random.uniform(0.0, 0.03))
    stage.kill(driven)
    while (answer := driven.next_answer()) is not None:
        answers.append(answer)
    return answers


def repair(stage: Stage, turn: int) -> None:
    """What fsrun does about a client that was killed; every other time nothing, so that the client has to."""
    if turn % 4 == 1:
        stage.fsrun("daemon", str(stage.place / "runs"), "--once")
    elif turn % 4 == 3:
        stage.fsrun("check", str(stage.run), "--fix")


def rounds(stage: Stage, job: str, work: Callable[[Driven, int], None]) -> None:
    """Open the job again and again, and have each process killed at its work."""
    for turn in range(ROUNDS):
        work(stage.opened(job, TIMEOUT, session=turn + 1), turn)
        repair(stage, turn)


@scenario("kill:opening")
def opening(stage: Stage) -> None:
    """However often a holder is killed while it opens or closes, the next one opens, and is the only one."""
    began = time.monotonic()
    _begin(stage)[1].leave()
    usual = time.monotonic() - began
    closed = 0
    for turn in range(ROUNDS):
        session, driven = _begin(stage)
        time.sleep(stage.random.uniform(0.1, 1.1) * usual)
        stage.kill(driven)
        answers = []
        while (answer := driven.next_answer()) is not None:
            answers.append(answer[0])
        wanted = ["opened", "logged", "closed"]
        expect(answers == wanted[: len(answers)], f"open, log and close were answered {answers}", "4.1")
        closed += answers == wanted
        if "logged" in answers:
            steps = [line["step"] for line in folder.lines(stage.run, "main", session)]
            expect(steps == [session], f"session {session} has logged {steps}", "6.8")
        repair(stage, turn)
    _begin(stage)[1].leave()
    sessions = len(folder.job_files(stage.run, "main", kind="lock"))
    ends = [folder.end(stage.run, "main", n).get("status") for n in range(1, sessions + 1)]
    expect(ends.count("finished") >= closed + 2, f"{closed + 2} were closed, the ends are {ends}", "4.8")
    expect(set(ends) <= {"finished", "crashed"}, f"the ends are {ends}", "4.8")


def _begin(stage: Stage) -> tuple[int, Driven]:
    """Have the next session opened, logged into and closed, without waiting for it."""
    session = len(folder.job_files(stage.run, "main", kind="lock")) + 1
    driven = stage.client()
    for command in (["open", "main", TIMEOUT], ["log", session, session, "a", session], ["close", "finished"]):
        driven.send(*command)
    return session, driven


@scenario("kill:logging")
def logging(stage: Stage) -> None:
    """No line that was answered is lost, none is there twice, however often the trainer is killed."""
    known: dict[int, int] = {}
    sent: dict[int, int] = {}

    def work(client: Driven, turn: int) -> None:
        # Steps rise over all rounds, so that no session voids what another one logged.
        steps = range(turn * 100, turn * 100 + 60)
        sent.update((step, step) for step in steps)
        answers = killed(stage, client, [["log", step, step, "a", step] for step in steps])
        expect(all(answer == ["logged"] for answer in answers), f"log was answered {answers}")
        known.update((step, step) for step in steps[: len(answers)])

    rounds(stage, "main", work)
    stage.opened("main", TIMEOUT, session=ROUNDS + 1).close()
    stage.agree()
    points = stage.read()["points"].get("a", [])
    steps = [step for step, _ in points]
    expect(len(set(steps)) == len(steps), "points are there twice", "8.3")
    lost = sorted(known.keys() - set(steps))
    expect(not lost, f"lines that were answered with logged are lost: steps {lost[:10]}", "11")
    odd = [point for point in points if sent.get(point[0]) != point[1]]
    expect(not odd, f"points that nobody logged: {odd[:5]}", "9, 7")
    logged = [line["step"] for n in range(1, ROUNDS + 1) for line in folder.lines(stage.run, "main", n)]
    expect(len(set(logged)) == len(logged), "a line was written twice", "6.8")


@scenario("kill:handing-over")
def handing_over(stage: Stage) -> None:
    """What was answered stands whole in the queue, and nothing half, however often the trainer is killed."""
    contents: set[bytes] = set()
    known: dict[str, bytes] = {}

    def work(client: Driven, turn: int) -> None:
        commands: list[list[object]] = []
        for number in range(10):
            content = f"{turn} {number}".encode() * (1 + 5000 * (number % 2))
            contents.add(content)
            path = stage.file(f"{turn}-{number}/model.bin", content)
            path = path.parent if number % 3 == 2 else path
            commands.append(["enqueue", path, f"model_{number % 4}.pt", turn * 10 + number])
        answers = killed(stage, client, commands)
        for command, answer in zip(commands, answers, strict=False):
            expect(answer[0] == "enqueued", f"enqueue was answered {answer}", "5.1")
            expect(answer[1] not in known, f"{answer[1]} was answered twice", "5.1")
            given = stage.place / "ckpt" / f"{turn}-{int(str(command[3])) % 10}" / "model.bin"
            known[answer[1]] = given.read_bytes()
            stage.handed_over.add(answer[1])

    rounds(stage, "main", work)
    stage.opened("main", TIMEOUT, session=ROUNDS + 1).close()
    found = {name: _content(stage, paths) for name, paths in folder.places(stage.run).items()}
    for name, content in found.items():
        expect(content in contents, f"{name} stands in the queue, and is not whole", "5.1")
        expect(content == known.get(name, content), f"{name} is not what was handed over as it", "5.1")
        expect(folder.meta(stage.run, name).get("entry") == name, f"the meta of {name} is about another", "5.1")
    lost = sorted(known.keys() - found.keys())
    expect(not lost, f"entries that were answered with enqueued are lost: {lost[:5]}", "9, 4")
    doubled = len(found) - len(set(found.values()))
    expect(not doubled, f"{doubled} checkpoints stand there twice", "5.1")


def _content(stage: Stage, paths: list[str]) -> bytes:
    path = stage.run / paths[0]
    if not path.is_dir():
        return path.read_bytes()
    inside = path / "model.bin"
    return inside.read_bytes() if inside.is_file() else b""


@scenario("kill:evaluating")
def evaluating(stage: Stage) -> None:
    """Every entry is done once and stands in one place, however often evaluators are killed."""
    hand = stage.hand.finished_run()
    names = {f"step_{i}.pt" for i in range(30)}
    for name in names:
        hand.entry(name)
    stage.handed_over |= names

    def work(client: Driven, turn: int) -> None:
        client.must(["best", "max", "acc", 0], "ruled")
        commands: list[list[object]] = []
        for _ in range(5):
            commands += [["take"], ["outcome", "done", "acc", turn]]
        for command, answer in zip(commands, killed(stage, client, commands), strict=False):
            # Nothing to take means nothing to be done with.
            wanted = ("taken", "none", "over") if command == ["take"] else ("moved", "error")
            expect(answer[0] in wanted, f"{command[0]} was answered {answer}", "5.2")

    rounds(stage, "eval", work)
    last = stage.opened("eval", TIMEOUT, session=ROUNDS + 1)
    until = time.monotonic() + LIMIT
    while (answer := last.ask("take"))[0] != "over":
        expect(time.monotonic() < until, f"after {LIMIT:g} s it is not over: {folder.places(stage.run)}", "5.8")
        if answer[0] == "taken":
            last.must(["outcome", "done", "acc", 99], "moved", "best", rule="5.3")
    last.close()
    stands = folder.places(stage.run)
    wanted = {name: [f"best/{name}"] for name in names}
    expect(stands == wanted, f"these stand: {stands}", "9, 4")
    states: dict[str, list[str]] = {}
    for (name, _), outcome in sorted(folder.outcomes(stage.run).items()):
        states.setdefault(name, []).append(outcome["state"])
    odd = {name: mine for name, mine in states.items() if mine != ["lost"] * (len(mine) - 1) + ["done"]}
    expect(states.keys() == names and not odd, f"the outcomes are {odd or states}", "9, 6")
    stage.agree()
    points = stage.read()["points"].get("acc", [])
    expect(len(points) == len(names), f"read gives {len(points)} points of {len(names)} outcomes", "5.9")
