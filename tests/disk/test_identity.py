"""Proof of death: true only on proof."""

import dataclasses
import os
import subprocess
import sys
import time

import pytest

from fsrun.disk import identity


def started() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def holder_of(pid: int) -> identity.Holder:
    stat = identity._stat(pid)
    assert stat is not None
    return dataclasses.replace(identity.own(), pid=pid, ticks=stat[1])


def test_a_live_process_is_not_dead_and_a_collected_one_is() -> None:
    child = started()
    holder = holder_of(child.pid)
    assert not identity.proved_dead(holder)
    child.kill()
    child.wait()
    assert identity.proved_dead(holder)


def test_a_killed_process_that_nobody_collected_is_dead() -> None:
    child = started()
    holder = holder_of(child.pid)
    child.kill()
    try:
        for _ in range(500):
            if identity.proved_dead(holder):
                break
            time.sleep(0.01)
        assert identity.proved_dead(holder)
    finally:
        child.wait()


def test_a_process_whose_first_thread_ended_is_alive() -> None:
    code = (
        "import threading, time, ctypes\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    child = subprocess.Popen([sys.executable, "-c", code])
    try:
        for _ in range(500):
            stat = identity._stat(child.pid)
            if stat and stat[0] == "Z":
                break
            time.sleep(0.01)
        assert identity._stat(child.pid) is not None
        assert identity._stat(child.pid)[0] == "Z"  # type: ignore[index]
        assert not identity.proved_dead(holder_of(child.pid))
    finally:
        child.kill()
        child.wait()


def test_a_pid_that_was_given_to_another_process_proves_death() -> None:
    me = identity.own()
    assert me.ticks is not None
    assert identity.proved_dead(dataclasses.replace(me, ticks=me.ticks - 1))
    assert not identity.proved_dead(me)


@pytest.mark.parametrize("field", ["host", "boot", "pidns"])
def test_another_place_is_unknown(field: str) -> None:
    gone = dataclasses.replace(identity.own(), pid=2**22 - 1, ticks=1)
    assert identity.proved_dead(gone)
    assert not identity.proved_dead(dataclasses.replace(gone, **{field: "other"}))
    assert not identity.proved_dead(dataclasses.replace(gone, **{field: ""}))


@pytest.mark.parametrize("pid", [0, -1, 2**40])
def test_a_number_that_is_no_pid_is_unknown(pid: int) -> None:
    assert not identity.proved_dead(dataclasses.replace(identity.own(), pid=pid, ticks=1))


def test_an_exec_keeps_the_identity_and_a_fork_changes_it() -> None:
    me = identity.own()
    assert identity.same_process(me, identity.own())
    assert not identity.same_process(me, dataclasses.replace(me, pid=me.pid + 1))
    assert not identity.same_process(dataclasses.replace(me, ticks=None), dataclasses.replace(me, ticks=None))


def test_tokens_leave_seeded_generators_alone() -> None:
    import random

    random.seed(7)
    state = random.getstate()
    assert identity.new_token() != identity.new_token()
    assert random.getstate() == state


def test_the_user_without_a_passwd_entry_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    import getpass

    def refuse() -> str:
        raise KeyError("no such uid")

    monkeypatch.setattr(getpass, "getuser", refuse)
    assert identity.own().user == str(os.getuid())
