"""Evaluates an entry on a fleet: verified, loaded by all engines, proven, measured, while engines are replaced.

Does: the order of one evaluation, and what of the fleet is told with its scores. Leaves to others: engines and router
(``supervision``), prompts and scores (``measure``), claims and outcomes (``run.entries``).

Writes nothing but logs. After a crash: the keeper ends engines and router within seconds; the entry goes back to the
queue, and the next evaluator starts a fleet of its own.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from fsrun.adapters import measure, tokens
from fsrun.adapters.evaluation import EvaluationError, Request, Result, SkipEvaluation
from fsrun.adapters.fleet import keys, loading
from fsrun.adapters.fleet.loading import Snapshot
from fsrun.adapters.fleet.processes import Processes
from fsrun.adapters.fleet.settings import ROUTERS, SEEDS, FleetSettings, python_of, with_seeds
from fsrun.adapters.fleet.states import Phase
from fsrun.adapters.fleet.states import Target as Weights
from fsrun.adapters.fleet.supervision import Supervision
from fsrun.adapters.generation import Answer, Ask, HttpTarget, Served, Target
from fsrun.adapters.gradings import Gradings
from fsrun.adapters.http import Client, needed
from fsrun.adapters.plan import EvalPlan
from fsrun.core.errors import UsageError
from fsrun.core.tally import FAILED
from fsrun.disk.identity import new_token

T = TypeVar("T")
_CONNECTIONS = 64
_SUSPECTS = 1000
_PAUSE, _LONGEST_PAUSE = 0.25, 4.0
"""Seconds between two tries of a prompt that other weights answered."""
_LOST_TRIES = 3
_PACKAGES = {"sglang-router": ("sglang_router", "sglang-router"), "smg": ("smg", "smg")}
_LOOK_UP = """
import importlib.metadata, importlib.util, json, sys
versions = {}
for module, package in (("sglang", "sglang"), *[item.split("=") for item in sys.argv[1:]]):
    if importlib.util.find_spec(module) is None:
        versions[package] = None
        continue
    try:
        versions[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        versions[package] = "unknown"
print(json.dumps(versions))
"""


class OneVersion:
    """Prompts to a fleet, asked again while answers come from other weights, until that engine is out of the router."""

    def __init__(
        self,
        target: Target,
        version: str,
        limit: float = 120.0,
        agreed: Callable[[], Coroutine[Any, Any, object]] | None = None,
        lost: Callable[[], Coroutine[Any, Any, object]] | None = None,
    ) -> None:
        """``agreed``: returns once nobody doubts what the engines hold. ``lost``: once no engine knows of a prompt."""
        self.target = target
        self.version = version
        self.limit = limit
        self._agreed = agreed
        self._lost = lost

    async def generate(self, ask: Ask) -> Answer:
        """An answer of this version; after ``limit`` seconds the one that there is."""
        if self._agreed is not None:
            await self._agreed()
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + self.limit, _PAUSE
        while True:
            answer = await self._ask(ask)
            right = answer.finish in FAILED or answer.weight_versions == (self.version,)
            if right or loop.time() >= until:
                return answer
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _ask(self, ask: Ask) -> Answer:
        """Ask, again where the prompt was lost: its own limit is that of the longest answer, hours maybe."""
        for _ in range(_LOST_TRIES):
            asking = asyncio.ensure_future(self.target.generate(ask))
            losing = asyncio.ensure_future(self._lost() if self._lost is not None else asyncio.Event().wait())
            try:
                await asyncio.wait([asking, losing], return_when=asyncio.FIRST_COMPLETED)
                if asking.done():
                    return asking.result()
            finally:
                for task in (asking, losing):
                    task.cancel()
                await asyncio.gather(asking, losing, return_exceptions=True)
        return Answer(finish="error", error="no answer came, and no engine had the prompt any more")

    async def served(self) -> list[Served]:
        """The engines behind it."""
        return await self.target.served()


class FleetEvaluator:
    """A fleet that is started with the first entry and loads each further one. One thread only.

    ``limit``: seconds that one entry may take, its load included. ``say`` is told what happens to engines.
    """

    def __init__(
        self,
        plan: EvalPlan,
        settings: FleetSettings,
        *,
        limit: float | None = None,
        api_key: str | None = None,
        admin_key: str | None = None,
        progress: Callable[[measure.Progress], None] | None = None,
        say: Callable[[str], object] | None = None,
    ) -> None:
        arguments, self.keys = keys.take(settings.sglang_args, keys.Keys(api_key, admin_key))
        if plan.seed is not None and not settings.urls:
            arguments = with_seeds(arguments)
        settings = replace(settings, sglang_args=arguments)
        self.plan = plan
        self.settings = settings
        self.limit = limit
        self.progress = progress
        self.session = new_token()
        """Part of each weight version: another evaluator's loads are never taken for this one's."""
        self.processes = Processes(settings.logs)
        self.supervision = Supervision(settings, self.processes, say or _say, self.keys)
        self.versions: dict[str, str] = {}
        """Of SGLang and the router, after ``check``."""
        self._runner = asyncio.Runner()
        self._tokenizers = tokens.Tokenizers()
        self._gradings = Gradings(plan)
        self._held: Snapshot | None = None
        self._suspects: dict[tuple[str, str], None] = {}

    def check(self) -> None:
        """Look for SGLang and the router, load graders, so that nothing is claimed in vain; raises ``UsageError``."""
        for module in ("aiohttp", "transformers"):
            needed(module)
        self._gradings.check()
        if self.settings.urls and self.settings.router_command not in ROUTERS:
            return
        versions = self._versions()
        wanted = [] if self.settings.urls else ["sglang"]
        if self.settings.router_command in _PACKAGES:
            wanted.append(_PACKAGES[self.settings.router_command][1])
        for package in wanted:
            if versions.get(package) is None:
                raise UsageError(
                    f"{python_of(self.settings)} has no {package}: install it there, or name another Python with "
                    "--sglang-python"
                )
        self.versions = {package: version for package in wanted if (version := versions.get(package)) is not None}
        if self.plan.seed is not None and not self.settings.urls and SEEDS not in self.settings.sglang_args:
            self.supervision.say(f"these engines cannot be started with {SEEDS}: they ignore --eval-seed")

    def evaluate(self, request: Request) -> Result:
        """Return the scores of an entry; raises ``EvaluationError``, or ``UsageError`` where settings cannot work."""
        try:
            return self._runner.run(self._limited(request))
        except (EvaluationError, SkipEvaluation, UsageError):
            raise
        except Exception as error:
            what = " ".join(f"{type(error).__name__}: {error}".split())[:500]
            told = {"type": type(error).__name__, "message": str(error)[:2000], "traceback": traceback.format_exc()}
            raise EvaluationError(f"the fleet failed: {what}", told) from error

    def close(self) -> None:
        """End engines, router and graders; returns when nothing of them is left."""
        self._gradings.close()
        self.processes.close()
        self._runner.close()

    async def _limited(self, request: Request) -> Result:
        limit = asyncio.timeout(self.limit)
        try:
            async with limit:
                return await self._evaluate(request)
        except TimeoutError:
            if not limit.expired():
                raise
            raise EvaluationError(f"took longer than the limit of {self.limit:g} s") from None

    async def _evaluate(self, request: Request) -> Result:
        supervision, fleet = self.supervision, self.supervision.fleet
        cold = all(member.phase in (Phase.DOWN, Phase.BARRED) for member in fleet.members.values())
        # Engines of ours that are all down start with whatever comes; given ones hold what they hold.
        held = None if cold and not self.settings.urls else self._held
        snapshot = await asyncio.to_thread(loading.inspect, request.path, held, tokenizer=self.plan.tokenizer is None)
        if snapshot.another and self.settings.urls:
            raise EvaluationError(
                f"{request.path} is another model than the engines hold (its config.json or tokenizer differs): "
                "engines given by --eval-engine must be started with it"
            )
        own = await asyncio.to_thread(self._tokenizers.get, self.plan.tokenizer or request.path)
        key = (request.run, request.entry)
        version = loading.version_of(request, self.session)
        suspect = key in self._suspects
        fleet.aim(Weights(version, request.path, snapshot.another, suspect, snapshot.content))
        async with Client(_CONNECTIONS, self.keys.api) as client:
            ready = asyncio.Event()
            keeping = asyncio.create_task(supervision.run(client, ready, cold))
            try:
                await _unless(keeping, ready.wait())
                measured = await _unless(keeping, self._measure(own, version))
                # An engine that differed meanwhile makes these answers doubtful until it is known who is right.
                await _unless(keeping, supervision.settled())
            finally:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)
                if fleet.proven:
                    self._held = snapshot
                if fleet.poisoned:
                    self._suspect(key)
                await asyncio.shield(supervision.wait_ended())
        engine = {**measured.engine, **self._facts(version)}
        return Result(measured.scores, measured.details, engine=engine, samples=measured.samples, report=True)

    async def _measure(self, own: tokens.Tokens, version: str) -> measure.Measured:
        plan = self.plan
        # Longer than an engine takes to be replaced: whether there is hope is for the supervision to say.
        patience = max(plan.retry_for, self.settings.start_limit)
        async with HttpTarget(
            [self.supervision.router_url],
            router=True,
            concurrency=plan.concurrency,
            retry_for=patience,
            api_key=self.keys.api,
        ) as target:
            asked = OneVersion(target, version, agreed=self.supervision.agreed, lost=self.supervision.lost)
            return await measure.measure(
                plan, asked, own, expected_version=version, progress=self.progress, graders=self._gradings
            )

    def _facts(self, version: str) -> dict[str, Any]:
        fleet, settings = self.supervision.fleet, self.settings
        reference = fleet.reference
        facts: dict[str, Any] = {
            "weight_version": version,
            "weight_checksum": reference.checksum if reference is not None else None,
            "router": settings.router_command,
            "router_version": self.versions.get(_PACKAGES.get(settings.router_command, ("", ""))[1]),
            "fleet": len(fleet.members),
            "gpus_per_engine": None if settings.urls else settings.gpus_per_engine,
            "replaced": list(fleet.replaced) or None,
            "router_starts": fleet.router_starts or None,
        }
        return {name: value for name, value in facts.items() if value is not None}

    def _suspect(self, key: tuple[str, str]) -> None:
        self._suspects[key] = None
        while len(self._suspects) > _SUSPECTS:
            del self._suspects[next(iter(self._suspects))]

    def _versions(self) -> dict[str, str | None]:
        import json

        python = python_of(self.settings)
        asked = [f"{module}={package}" for module, package in _PACKAGES.values()]
        try:
            done = subprocess.run(
                [python, "-P", "-c", _LOOK_UP, *asked],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=True,
            )  # fmt: skip
            found: dict[str, str | None] = json.loads(done.stdout.strip().splitlines()[-1])
            return found
        except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
            raise UsageError(f"--sglang-python {python}: it does not run: {error}") from error


async def _unless(keeping: asyncio.Task[str], work: Coroutine[Any, Any, T]) -> T:
    """Wait for work, unless the fleet is given up before."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([keeping, task], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise EvaluationError(keeping.result())
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _say(text: str) -> None:
    print(f"fsrun: fleet: {text}", file=sys.stderr, flush=True)
