"""``/metrics``: what an alert needs, in a format that a scraper reads whatever runs are called."""

from __future__ import annotations

import os
import re
from pathlib import Path

from fsrun.core.records import rfc3339
from fsrun.disk.fs import LocalFileSystem
from fsrun.web import metrics
from fsrun.web.catalog import Catalog
from support import build
from support.clock import FakeClock

_LINE = re.compile(r'(?:# (?:HELP|TYPE) .*|[a-z_]+(?:\{(?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*\})? -?[0-9.e+-]+)\n')


def rendered(root: Path) -> str:
    clock = FakeClock()
    catalog = Catalog(LocalFileSystem(), str(root), clock)
    catalog.look()
    clock.advance(7)
    return metrics.render(catalog, daemon=False)


def test_an_evaluator_that_stopped_is_noticed(root: Path) -> None:
    build.run(root, "done").session("main", 1)
    run = build.run(root)
    opened = rfc3339(FakeClock().now_ns())
    run.session("main", 1, build.line(100, loss=0.5), ended=None, opened=opened)
    run.session("eval", 1, build.line(40, {"eval/acc": 0.5}), ended="crashed")
    for name in ("queue/step_60.pt", "queue/step_80.pt", "claimed/eval.1/1/step_50.pt"):
        run.write(name, "")
    text = rendered(root)
    where = 'project="speech",run="big"'
    for line in (
        "fsrun_scanned 1",
        "fsrun_stalled_seconds 0",
        "fsrun_daemon_running 0",
        'fsrun_runs{status="finished"} 1',
        'fsrun_runs{status="running"} 1',
        'fsrun_jobs{job="eval",status="crashed"} 1',
        'fsrun_jobs{job="main",status="finished"} 1',
        f'fsrun_job_status{{{where},job="eval",status="crashed"}} 1',
        f'fsrun_job_status{{{where},job="main",status="running"}} 1',
        f'fsrun_heartbeat_age_seconds{{{where},job="main"}} 7',
        f'fsrun_job_timeout_seconds{{{where},job="main"}} 30',
        f'fsrun_step{{{where},job="main"}} 100',
        f'fsrun_lag_steps{{{where},job="eval"}} 60',
        f'fsrun_entries{{{where},state="waiting"}} 2',
        f'fsrun_entries{{{where},state="claimed"}} 1',
        f'fsrun_entries{{{where},state="failed"}} 0',
    ):
        assert f"{line}\n" in text
    assert 'run="done"' not in text
    assert "heartbeat_age_seconds{" + where + ',job="eval"' not in text


def test_names_cannot_break_the_format(root: Path) -> None:
    for name in ('a"b', "a\nb", "a\\b", 'x"} 1\nfsrun_runs{status="'):
        build.run(root, name, name).session("main", 1, ended=None)
    text = rendered(root)
    assert _LINE.sub("", text) == ""
    assert r'run="x\"} 1\nfsrun_runs{status=\""' in text


def test_each_metric_is_described_once(root: Path) -> None:
    build.run(root).session("main", 1, ended=None)
    text = rendered(root)
    described = re.findall(r"# TYPE (\S+) gauge", text)
    assert len(described) == len(set(described))
    assert set(re.findall(r"^(fsrun_[a-z_]+)", text, re.M)) == set(described)


def test_numbers_have_all_their_digits(root: Path) -> None:
    run = build.run(root)
    opened = rfc3339(FakeClock().now_ns())
    run.session("main", 1, build.line(12_345_678_901, loss=0.5), ended=None, opened=opened, timeout=30.123456789)
    text = rendered(root)
    assert 'fsrun_step{project="speech",run="big",job="main"} 12345678901\n' in text
    assert 'fsrun_job_timeout_seconds{project="speech",run="big",job="main"} 30.123456789\n' in text


def test_folders_whose_names_are_no_text_have_no_series(root: Path) -> None:
    opened = rfc3339(FakeClock().now_ns())
    for name in ("plain", os.fsdecode(b"a\xff"), os.fsdecode(b"a\xfe")):
        build.run(root, name).session("main", 1, build.line(1, loss=0.5), ended=None, opened=opened)
    steps = [line for line in rendered(root).splitlines() if line.startswith("fsrun_step{")]
    assert steps == ['fsrun_step{project="speech",run="plain",job="main"} 1']
