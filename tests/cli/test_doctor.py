"""``fsrun doctor``: the table, the verdict, exit codes, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from fsrun.core.fitness import Facts, Tried
from fsrun.run.doctor import Doctor
from tests.support.command import fsrun, start


@pytest.mark.multiprocess
def test_a_fit_folder_is_a_table_a_verdict_and_exit_code_0(tmp_path: Path) -> None:
    result = fsrun("doctor", tmp_path, "--seconds", "1.5")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1].startswith(f"{tmp_path}: fit for runs")
    assert any(line.split()[:2] == ["fit", "rename"] for line in result.stdout.splitlines())
    assert os.listdir(tmp_path) == []


@pytest.mark.unit
def test_an_unfit_folder_is_exit_code_5_with_the_reason_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = Facts(str(tmp_path), tried={"rename": Tried(False, "Function not implemented\x1b[2J")})
    monkeypatch.setattr(Doctor, "examine", lambda self: facts)
    result = fsrun("doctor", tmp_path)
    assert result.exit_code == 5
    assert "UNFIT  rename" in result.stdout
    assert "-> use another file system" in result.stdout
    assert "\x1b" not in result.stdout
    assert result.stdout.splitlines()[-1] == f"{tmp_path}: not fit for runs"
    found = json.loads(fsrun("doctor", tmp_path, "--json").stdout)
    assert found["verdict"] == "unfit"
    assert {"what", "severity", "found", "remedy"} == set(found["findings"][0])


@pytest.mark.unit
def test_no_such_folder_is_exit_code_4(tmp_path: Path) -> None:
    assert fsrun("doctor", tmp_path / "no").exit_code == 4


@pytest.mark.multiprocess
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    process = start("doctor", tmp_path, "--seconds", "30", start_new_session=True)
    try:
        end = time.monotonic() + 60
        while not list(tmp_path.glob(".tmp-doctor*/trial/jobs/*.lock")) and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 128 + signal.SIGINT
    finally:
        process.kill()
        process.communicate()
    assert os.listdir(tmp_path) == []
