"""``fsrun eval RUN``: evaluate what is handed over, in one of the places there are, until no more can come.

Does: the loop over checkpoints. Leaves to others: options (``evaloptions``), the place and its plan (``evalplace``),
``--check`` (``evalcheck``).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click

from fsrun.cli import evalplace
from fsrun.cli.evaloptions import EvalCommand, eval_options
from fsrun.cli.options import find_run, root_option
from fsrun.cli.text import age, clean, say
from fsrun.core.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from fsrun.adapters.evaluation import Evaluator
    from fsrun.core.order import Waiting
    from fsrun.run.entries import Entry, Waits
    from fsrun.run.run import Run

_WAIT_STEP = 1.0


@click.command(cls=EvalCommand)
@click.argument("run", required=False)
@eval_options
@root_option
def command(run: str | None, root: str | None, **options: Any) -> int:
    """Evaluate the checkpoints of RUN as they are handed over.

    \b
    fsrun eval big --function my_eval.py:evaluate
    fsrun eval big --router http://127.0.0.1:30000 --eval-prompt-data gsm8k test.parquet
    fsrun eval big --eval-num-gpus 2 --eval-prompt-data aime aime.jsonl --eval-samples 16
    fsrun eval --check --router http://127.0.0.1:30000 --eval-prompt-data gsm8k test.parquet

    A function or command runs in a process of its own. Whatever goes wrong is the outcome "failed" of that entry, which
    is tried again up to three times. A score whose name has no / gets eval/ before it, in --best too. Sets are read by
    their keys: GSM8K, AIME, multiple choice. RUN comes first where an engine setting has several values.

    Exit code 0: all done. 1: an entry is in failed/. 3: another process holds the job. 4: no such run.
    """  # noqa: D301 - click reads the escape
    if options["check"]:
        from fsrun.cli.evalcheck import check

        return check(evalplace.choose(options), os.environ)
    if run is None:
        taken = "; put it first, an engine setting took it for its value" if options["eval_sglang"] else ""
        raise UsageError(f"RUN is missing: fsrun eval RUN ... evaluates a run; --check alone needs none{taken}")
    _check(options)
    place = evalplace.choose(options)
    if place.kind in ("function", "command"):
        # Before the run is looked for: what cannot be loaded claims nothing, and waits for nothing.
        return _evaluate_run(run, root, place, evalplace.make(place, {}, os.environ), options)
    if options["wait"] is not None:
        # Nobody waits an hour for a run to be told that SGLang is not there.
        _check_evaluator(evalplace.make(place, {}, os.environ))
    path = _find(run, root, options["wait"])
    config = _main_config(path)
    for line in evalplace.lines(place, config):
        say(line)
    return _evaluate_run(path, None, place, evalplace.make(place, config, os.environ), options)


def _evaluate_run(
    run: str, root: str | None, place: evalplace.Place, evaluator: Evaluator, options: dict[str, Any]
) -> int:
    try:
        evaluator.check()
        path = _find(run, root, options["wait"])
        _check_rule(path, options["best"], options["keep"])
        return _serve(path, place, evaluator, options)
    finally:
        evaluator.close()


def _check_evaluator(evaluator: Evaluator) -> None:
    try:
        evaluator.check()
    finally:
        evaluator.close()


def _main_config(path: str) -> dict[str, Any]:
    """What the trainer recorded; empty where it cannot be read."""
    from fsrun.disk.fs import LocalFileSystem
    from fsrun.run.create import newest_lock

    lock = newest_lock(LocalFileSystem(), path)
    return dict(lock.config) if lock is not None else {}


def _recorded(path: str, job: str) -> dict[str, Any]:
    """The plan of this job's last session; empty where there is none."""
    from fsrun.disk.fs import LocalFileSystem
    from fsrun.disk.store import Store
    from fsrun.run import chain

    fs = LocalFileSystem()
    highest = chain.look(fs, path, job).highest
    lock = chain.read_lock(Store(fs, path, job, highest), job, highest) if highest else None
    plan = None if lock is None else lock.config.get("eval")
    return plan if isinstance(plan, dict) else {}


def _check(options: dict[str, Any]) -> None:
    """Refuse what cannot work before anything is looked up, started or written; completes --best and --keep."""
    from fsrun.adapters.evaluation import score_tag
    from fsrun.core.ids import MAIN, MAX_JOB, is_job
    from fsrun.core.retention import parse_rule
    from fsrun.run.create import choose_timeout

    job = options["job"]
    if not is_job(job):
        raise UsageError(f"--job {job}: a job is of lower case letters, digits, - and _, at most {MAX_JOB}")
    if job == MAIN:
        raise UsageError(f"--job {MAIN}: that is the job of the trainer; give an evaluator another name, such as eval")
    if options["best"] is None and options["keep"] is not None:
        raise UsageError(f"--keep {options['keep']} goes with --best, which says what is better")
    options["keep"] = 1 if options["keep"] is None else options["keep"]
    if options["best"] is not None:
        rule = parse_rule(options["best"], options["keep"])
        options["best"] = f"{rule.mode}:{score_tag(rule.tag)}"
    choose_timeout(options["timeout"], os.environ)


def _check_rule(path: str, best: str | None, keep: int) -> None:
    """Refuse another rule than the run's before a session is opened; the evaluation itself looks again."""
    from fsrun.core import layout
    from fsrun.core.ids import MAIN
    from fsrun.core.records import BestRule
    from fsrun.core.retention import check_same, parse_rule
    from fsrun.disk.fs import LocalFileSystem
    from fsrun.disk.store import Store

    store = Store(LocalFileSystem(), path, MAIN, 0)
    record = store.record(layout.BEST_RULE) if best is not None and layout.BEST_RULE in store.names("") else None
    if record is not None:
        where = store.path(layout.BEST_RULE)
        check_same(parse_rule(best, keep), BestRule.from_json(record, where), where)


def _find(run: str, root: str | None, wait: float | None) -> str:
    """Path of the run folder; waits for it where asked to."""
    from fsrun.run.locate import resolve_run

    if wait is None:
        return find_run(run, root)
    # The one that is waited for has the very id: another that begins so may be there already.
    deadline = time.monotonic() + wait
    said = False
    while True:
        try:
            return resolve_run(run, root)
        except NotFoundError:
            if time.monotonic() >= deadline:
                raise
        if not said:
            say(f"waiting for {clean(run)}")
            said = True
        time.sleep(min(_WAIT_STEP, max(0.0, deadline - time.monotonic())))


def _serve(path: str, place: evalplace.Place, evaluator: Evaluator, options: dict[str, Any]) -> int:
    """Join the run and evaluate entry after entry."""
    from fsrun.core.order import Waiting, linger_time
    from fsrun.core.timing import FAST_POLL, POLL_INTERVAL, Timing
    from fsrun.run.create import choose_timeout
    from fsrun.run.entries import Evaluation
    from fsrun.run.run import join

    timing = Timing(choose_timeout(options["timeout"], os.environ))
    linger = linger_time(options["linger"], timing)
    if linger > options["linger"]:
        least = f"4 timeouts of {timing.timeout:g} s"
        click.echo(f"fsrun: --linger is less than {least}; it is taken as {linger:g} s", err=True)
    recorded = evalplace.to_config(place, _main_config(path), os.environ, evaluator)
    for line in evalplace.changes(_recorded(path, options["job"]), recorded):
        click.echo(f"fsrun: {line}", err=True)
    with join(path, job=options["job"], timeout=options["timeout"], config={"eval": recorded}) as run:
        config = run.main_config()
        entries = run.entries(
            best=options["best"],
            keep=options["keep"],
            order=options["order"],
            max_waiting=options["max_waiting"],
            drop=options["drop"],
            linger=options["linger"],
            once=options["once"],
            poll=FAST_POLL if place.kind == "engines" else POLL_INTERVAL,
        )
        if isinstance(entries, Evaluation):
            entries.on_wait = lambda waits: say(_waiting(f"{run.project}/{run.id}", waits, linger))
            entries.on_skip = lambda waiting, reason: say(f"{_named(waiting)}: skipped: {clean(reason)}")
        took = False
        for entry in entries:
            took = True
            if place.kind in ("engines", "fleet"):
                say(f"{_named(Waiting(entry.name, entry.attempt, entry.step))}: begins")
            _evaluate(run, entry, evaluator, config, options["keep_samples"])
        failed = run.failed_entries()
    if not took and not failed:
        say("nothing was waiting to be evaluated")
    if failed:
        names = ", ".join(clean(name) for name in failed[:5])
        say(f"{len(failed)} in failed/: {names}{' ...' if len(failed) > 5 else ''} (fsrun retry puts them back)")
    return 1 if failed else 0


def _named(entry: Waiting) -> str:
    return f"{clean(entry.entry)} (step {'?' if entry.step is None else entry.step}, attempt {entry.attempt})"


def _waiting(run: str, waits: Waits, linger: float) -> str:
    """One line for a person who wonders what goes on."""
    if waits.coming and (waits.over or waits.main not in ("running", "unknown")):
        return f"waiting for checkpoints of {clean(run)}: main is {clean(waits.main)}, a side job still hands over"
    if waits.over:
        return f"waiting for another evaluator, which still holds a checkpoint of {clean(run)}"
    if waits.main in ("failed", "crashed"):
        return f"main of {clean(run)} {waits.main}; waiting up to {age(linger)} for it to come back"
    return f"waiting for checkpoints of {clean(run)} (main {clean(waits.main)}, none waits)"


def _evaluate(run: Run, entry: Entry, evaluator: Evaluator, config: dict[str, Any], keep: int | None) -> None:
    """Evaluate one entry and say how it ended, in one line."""
    from fsrun.adapters.evaluation import EvaluationError, Request, SkipEvaluation, kept
    from fsrun.core import layout
    from fsrun.core.order import Waiting

    request = Request(entry.path, entry.name, entry.step, entry.attempt, str(run.path), config)
    where = _named(Waiting(entry.name, entry.attempt, entry.step))
    started = time.monotonic()
    refused: UsageError | None = None
    with entry:
        try:
            result = evaluator.evaluate(request)
        except SkipEvaluation as skip:
            entry.skip(str(skip))
            say(f"{where}: skipped: {clean(skip)}")
        except EvaluationError as error:
            record = layout.join(layout.EVALS, layout.outcome_name(entry.name, entry.attempt))
            entry.fail(error.reason, error.error, samples=kept(error.samples, keep))
            traced = f" (traceback: {clean(record)})" if (error.error or {}).get("traceback") else ""
            say(f"{where}: failed: {clean(error.reason)}{traced}")
        except UsageError as error:
            entry.give_back(str(error))
            refused = error
        else:
            samples = kept(result.samples, keep)
            entry.done(
                result.scores, details=result.details, engine=result.engine, samples=samples, report=result.report
            )
            scores = ", ".join(f"{clean(tag)} {value:.6g}" for tag, value in result.scores.items())
            say(f"{where}: {scores} in {time.monotonic() - started:.1f} s")
    if refused is not None:
        # What this command was given cannot work: no checkpoint is to blame, and the next would fare no better.
        raise refused
