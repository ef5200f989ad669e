"""Scenarios of several holders of one job: held, dead, expired, closed by others, fenced (protocol.md 4.4 to 4.7)."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import folder
import hand
from driven import LIMIT, Driven, expect
from stage import Stage, scenario

T = 3


@scenario("drive:held")
def held(stage: Stage) -> None:
    """A job whose holder lives is refused to a second one, with host and pid."""
    first = stage.opened(timeout=T)
    holder = folder.lock(stage.run, "main", 1).get("holder") or {}
    stated = {"host", "pid"} <= holder.keys()
    expect(stated, f"the lock's holder is {holder}: it names no host and pid", "6.1", stage.run / "jobs/main.1.lock")
    second = stage.client()
    second.must(["open", "main", T], "held", holder["host"], holder["pid"], rule="4.4", limit=LIMIT)
    second.end_input()
    locks = [file.name for file in folder.job_files(stage.run, kind="lock")]
    expect(locks == ["main.1.lock"], f"the locks are {locks}", "4.1")
    first.must(["log", 1, 1, "a", 1], "logged")
    first.close()


@scenario("drive:take-over-dead")
def takes_over_the_dead(stage: Stage) -> None:
    """A predecessor that is proved dead on this host is closed at once; what it wrote half does not count."""
    first = stage.opened(timeout=60)
    for step in range(3):
        first.must(["log", step, step, "a", step], "logged")
    stage.kill(first)
    log = stage.run / "scalars/main.1.jsonl"
    size = log.stat().st_size
    with log.open("ab") as file:
        file.write(b'{"step":3,"time":3,"a')
    others = _other_logs(stage)
    began = time.monotonic()
    second = stage.opened(timeout=60, session=2)
    took = time.monotonic() - began
    expect(took < 30, f"it took {took:.0f} s, as if nothing proved that the process is dead", "4.4")
    _closed(stage, "proved dead", {"scalars/main.1.jsonl": size} | others)
    second.must(["log", 3, 3, "a", 30], "logged")
    second.close()
    points = stage.read()["points"].get("a")
    expect(points == [[0, 0], [1, 1], [2, 2], [3, 30]], f"read says that the points are {points}", "4.7")


def _other_logs(stage: Stage) -> dict[str, int]:
    """Samples of the machine and an index, each with half a line; returns what counts of them."""
    whole = b'{"time":1.0}\n{"time":2.0}\n'
    stage.hand.write("system/main/1.jsonl", whole + b'{"time"')
    line = b'{"step":1,"time":1.0,"kind":"text","tag":"a","type":"text/plain","size":1,"text":"x"}\n'
    stage.hand.write("media/main.1.jsonl", line + b'{"step"')
    return {"system/main/1.jsonl": len(whole), "media/main.1.jsonl": len(line)}


@scenario("drive:take-over-sizes")
def takes_over_what_the_end_states(stage: Stage) -> None:
    """A fence is never below the sizes that the end states, whatever the log says now."""
    stage.unfit = True  # A log that lost bytes after its end is damaged, by our own hand.
    line = b'{"step":1,"time":1,"a":1}\n'
    torn = line + b'{"step":2,"time":2\0'
    stage.hand.make()
    stage.hand.open()
    stage.hand.write("scalars/main.1.jsonl", torn + line)
    stage.hand.end(status="failed", sizes={"scalars/main.1.jsonl": len(torn + line)})
    client = stage.opened(session=2)
    stated = folder.lock(stage.run, "main", 2).get("fence") or {}
    size = stated.get("scalars/main.1.jsonl", 0)
    wanted = len(torn + line)
    expect(size >= wanted, f"the fence is {stated}, below the size {wanted} that the end of session 1 states", "4.7")
    client.close()


def _closed(stage: Stage, reason: str, fence: dict[str, int]) -> None:
    end = folder.end(stage.run, "main", 1)
    found = (end.get("status"), end.get("reason"))
    expect(found == ("crashed", reason), f"the end of session 1 says {found}", "4.4")
    expect(not end.get("token"), "the end of somebody else carries the session's token", "6.3")
    stated = folder.lock(stage.run, "main", 2).get("fence")
    expect(stated == fence, f"the fence is {stated}, expected {fence}", "4.7")


@scenario("drive:take-over-expired")
def takes_over_the_expired(stage: Stage) -> None:
    """A session of another host is closed once its beat stood still for its T, and not before."""
    stage.hand.make()
    stage.hand.open(timeout=T)
    stage.killed = True
    stage.hand.write("scalars/main.1.jsonl", b'{"step":1,"time":1,"a":1}\n{"step":2,"time":2,"a":2}\0\n{"step"')
    began = time.monotonic()
    client = stage.opened(timeout=60, session=2)
    took = time.monotonic() - began
    expect(took >= T, f"it was closed after {took:.1f} s, although T is {T} s", "4.4")
    _closed(stage, "expired", {"scalars/main.1.jsonl": len(b'{"step":1,"time":1,"a":1}\n')})
    left = [file.name for file in folder.job_files(stage.run, "main", 1) if file.kind in ("beat", "taken")]
    expect(not left, f"of the closed session these are left: {left}", "4.4")
    client.close()


@scenario("drive:held-here")
def held_here(stage: Stage) -> None:
    """The name of this host proves nothing alone: another boot, or another pid namespace, is another place."""
    mine = this_process()
    elsewhere = {"boot": hand.NODE7["boot"], "pidns": "1"}
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    for key, other in elsewhere.items():
        holder = mine | {"pid": gone.pid, "ticks": 81, key: other}
        stage.hand.make()
        stage.hand.open(timeout=T, holder=holder)
        with beating(stage, "main", 1, T / 6):
            client = stage.client()
            answer = client.ask("open", "main", T, limit=LIMIT)
            client.end_input()
            client.leave()
        names = [file.name for file in folder.job_files(stage.run) if file.kind != "beat"]
        alive = f"the holder beats, has this host's name and another {key}, so that its pid proves nothing"
        expect(names == ["main.1.lock"], f"{alive}: jobs/ holds {names}", "4.4")
        wanted = ["held", str(holder["host"]), str(gone.pid)]
        expect(answer == wanted, f"{alive}: open was answered {' '.join(answer)!r}, expected {wanted}", "4.4")
        stage.run.rename(stage.run.with_name(f"r-{key}"))
    stage.unfit = True


def this_process() -> dict[str, object]:
    """The holder that this process would be, without its pid and ticks."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    pidns = Path("/proc/self/ns/pid")
    return {
        "host": socket.gethostname(),
        "boot": boot.read_text("utf-8").strip() if boot.exists() else "here",
        "pidns": str(pidns.stat().st_ino) if pidns.exists() else "here",
    }


@contextmanager
def beating(stage: Stage, job: str, session: int, every: float) -> Iterator[None]:
    """A holder on another host that beats."""
    stop = threading.Event()

    def run() -> None:
        count = 0
        while not stop.wait(every):
            stage.hand.beat(job, session, count)
            count += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@scenario("drive:held-elsewhere")
def held_elsewhere(stage: Stage) -> None:
    """A session of another host whose beat moves is alive, however old its files are."""
    stage.hand.make()
    stage.hand.open(timeout=T)
    with beating(stage, "main", 1, T / 6):
        client = stage.client()
        client.must(["open", "main", T], "held", "node7", 4711, rule="4.4", limit=LIMIT)
        client.end_input()
        client.leave()
    names = [file.name for file in folder.job_files(stage.run) if file.kind != "beat"]
    expect(names == ["main.1.lock"], f"jobs/ holds {names}", "4.4")


@scenario("drive:taken-away")
def taken_away(stage: Stage) -> None:
    """A beat that was taken away is a verdict: anyone finishes it at once."""
    stage.hand.make()
    token = stage.hand.open(timeout=120)
    beat = stage.run / f"jobs/main.1.{token}.beat.0"
    beat.rename(stage.run / f"jobs/main.1.{token}.taken.0")
    began = time.monotonic()
    stage.opened(session=2).close()
    took = time.monotonic() - began
    expect(took < 60, f"it took {took:.0f} s", "4.4")
    expect(folder.end(stage.run, "main", 1).get("status") == "crashed", "the end of session 1 is not crashed", "4.8")
    left = [file.name for file in folder.job_files(stage.run, kind="taken")]
    expect(not left, f"the taken name is left: {left}", "4.4")


@scenario("drive:other-version-beside")
def other_version_beside(stage: Stage) -> None:
    """A session under another major version is closed by nobody who does not know it, and its claim stays."""
    stage.unfit = True
    stage.hand.finished_run()
    client = stage.opened("eval", T)
    stage.hand.open("eval-b", timeout=1, protocol="2.0")
    stage.hand.claim("eval-b", 1, 1, "x_1.pt")
    until = time.monotonic() + 4
    while time.monotonic() < until:
        answer = client.ask("take")
        known = "eval-b.1.lock is of protocol 2.0, which nobody here knows"
        expect(answer == ["none"], f"take was answered {' '.join(answer)!r}, although {known}", "10")
        left = [file.name for file in folder.job_files(stage.run, "eval-b") if file.kind in ("end", "taken")]
        expect(not left, f"the session was closed ({left}), although {known}", "10; 4.4", stage.run / "jobs")
        time.sleep(0.1)
    stands = folder.places(stage.run)
    expect(stands == {"x_1.pt": ["claimed/eval-b.1/1/x_1.pt"]}, f"the claim is gone: {stands}", "10; 5.5")
    client.close()


@scenario("drive:lock-without-beat")
def lock_without_beat(stage: Stage) -> None:
    """A lock without its beat may be ended after T of that: its opener died between two steps."""
    stage.hand.make()
    token = stage.hand.open(timeout=T)
    (stage.run / f"jobs/main.1.{token}.beat.0").unlink()
    (stage.run / "jobs/main.2.0123456789abcdef.beat.0").write_bytes(b"")
    began = time.monotonic()
    client = stage.opened(timeout=60, session=2)
    took = time.monotonic() - began
    expect(took >= T, f"it was closed after {took:.1f} s, although T is {T} s", "4.4")
    client.close()
    (stage.run / "jobs/main.2.0123456789abcdef.beat.0").unlink(missing_ok=True)


@scenario("drive:continues")
def continues(stage: Stage) -> None:
    """A false verdict costs nothing: the holder opens the next session itself, and goes on."""
    client = stage.opened(timeout=T)
    for step in range(3):
        client.must(["log", step, step, "a", step], "logged")
    size = (stage.run / "scalars/main.1.jsonl").stat().st_size
    stage.hand.close("main", 1)
    client.must(["log", 3, 3, "a", 3], "logged", rule="4.6")
    client.must(["log", 4, 4, "a", 4], "logged", rule="4.6")
    lock = folder.lock(stage.run, "main", 2)
    expect(lock.get("continues") is True, f"the lock says continues {lock.get('continues')!r}", "4.6")
    pids = [(folder.lock(stage.run, "main", n).get("holder") or {}).get("pid") for n in (1, 2)]
    expect(pids[0] is not None and pids[0] == pids[1], f"the holders of sessions 1 and 2 have the pids {pids}", "4.6")
    client.must(["finish"], "finished")
    client.close()
    fence = (lock.get("fence") or {}).get("scalars/main.1.jsonl", 0)
    expect(fence >= size, f"the fence is {lock.get('fence')}, although {size} bytes were acknowledged", "4.7")
    expect(folder.end(stage.run, "main", 2).get("status") == "finished", "the end has not the true status", "4.6")
    finished = folder.finished(stage.run)
    expect(finished.get("main_session") == 2, f"FINISHED names {finished.get('main_session')!r}", "5.8")
    points = stage.read()["points"].get("a")
    expect(points == [[step, step] for step in range(5)], f"read says that the points are {points}", "4.6")


@scenario("drive:continues-alone")
def continues_alone(stage: Stage) -> None:
    """A holder that is idle finds by its beats that it was closed, and goes on; the end is that of the last session."""
    client = stage.opened(timeout=T)
    stage.hand.close("main", 1)
    stage.wait("session 2 is open", lambda: folder.job_files(stage.run, "main", 2, "lock"), "4.6", 10 * T)
    client.close("failed", "preempted")
    end = folder.end(stage.run, "main", 2)
    expect((end.get("status"), end.get("reason")) == ("failed", "preempted"), f"the end of session 2 is {end}", "4.6")
    first = folder.end(stage.run, "main", 1)
    expect(first.get("status") == "crashed", "the end of session 1 has changed", "9, 3")


@scenario("drive:fenced")
def fenced(stage: Stage) -> None:
    """A holder whose job has a newer session stops writing, whatever it is asked."""
    client = stage.opened()
    client.must(["log", 1, 1, "a", 1], "logged")
    _succeed(stage)
    before = folder.tree(stage.run)
    _refuses_all(stage, client)
    after = folder.tree(stage.run)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name, 0) != after.get(name, 0))
    expect(not changed, f"a fenced holder has changed {changed}", "4.6", stage.run)


def _succeed(stage: Stage) -> None:
    """Close session 1 of main, and open session 2 on another host."""
    stage.hand.close("main", 1)
    size = (stage.run / "scalars/main.1.jsonl").stat().st_size
    stage.hand.open("main", 2, fence={"scalars/main.1.jsonl": size})


def _refuses_all(stage: Stage, client: Driven) -> None:
    path = stage.file("x_1.pt", b"x")
    for command in (["log", 2, 2, "a", 2], ["enqueue", path, "x_1.pt", 1], ["finish"], ["beat"]):
        client.must(command, "fenced", rule="4.6")
    client.must(["close", "finished"], "fenced", rule="4.6")
    code = client.leave()
    expect(code == 0, f"a fenced client was closed and ended with code {code}")


@scenario("drive:zombie")
def zombie(stage: Stage) -> None:
    """A holder that was stopped, and taken over meanwhile, writes nothing that counts when it wakes."""
    client = stage.opened(timeout=T)
    client.must(["log", 1, 1, "a", 1], "logged")
    client.stop()
    _succeed(stage)
    size = (stage.run / "scalars/main.1.jsonl").stat().st_size
    client.send("log", 2, 2, "a", 2)
    client.go_on()
    answer = client.answer()
    expect(answer == ["fenced"], f"log was answered {' '.join(answer)!r} after it was taken over", "4.6")
    _refuses_all(stage, client)
    fence = folder.lock(stage.run, "main", 2)["fence"]["scalars/main.1.jsonl"]
    expect(fence == size, "the fence has changed", "9, 3")
    names = [file.name for file in folder.job_files(stage.run, "main", 2) if file.kind != "beat"]
    expect(names == ["main.2.lock"], f"of session 2 jobs/ holds {names}", "4.6")
    points = stage.read()["points"]
    expect(points == {"a": [[1, 1]]}, f"read says that the points are {points}", "4.7")
