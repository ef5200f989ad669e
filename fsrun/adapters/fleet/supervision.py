"""Does what ``states`` says is due, and tells it what came of it, while prompts run and in between.

Does: one task for each action, looks at engines and router every few seconds, takes their ends. Leaves to others:
what is due (``states``), single steps (``launch``, ``loading``), prompts (``evaluator``).

Holds nothing on a disk. After a crash: the keeper ends what was started.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from fsrun.adapters.evaluation import EvaluationError
from fsrun.adapters.fleet import launch, loading
from fsrun.adapters.fleet.keys import FILE, Keys, in_arguments
from fsrun.adapters.fleet.launch import ROUTER
from fsrun.adapters.fleet.processes import Processes
from fsrun.adapters.fleet.settings import FleetSettings, engine_command, gpu_groups, router_command
from fsrun.adapters.fleet.stalls import Stalls
from fsrun.adapters.fleet.states import Action, Event, Fleet, Kind, Member, Phase, Target
from fsrun.adapters.http import CallError, Client, base_url, shown
from fsrun.adapters.sglang_api import Engine, Router

MISSES = 3
"""Looks in a row without an answer after which an engine is replaced."""
_ENDING = frozenset({"refused", "unreachable", "cut", "hung", "busy", "broken"})
"""Failures of a load with which an engine may be about to end; the others are answers of one that lives on."""
_END_LIMIT = 15.0
"""Seconds in which an engine whose load failed may turn out to have ended: its port hangs for 5 s."""
_TICK = 1.0


class Supervision:
    """The engines and the router of a fleet. ``client`` belongs to the entry that is evaluated."""

    def __init__(
        self, settings: FleetSettings, processes: Processes, say: Callable[[str], object], keys: Keys | None = None
    ) -> None:
        self.settings = settings
        self.keys = keys or Keys()
        self.processes = processes
        self.say = say
        self.urls: dict[str, str] = {}
        self.router_url = ""
        if settings.urls:
            members = {f"engine-{i}": Member(f"engine-{i}", given=True) for i in range(len(settings.urls))}
            self.urls = {name: base_url(url) for name, url in zip(members, settings.urls, strict=True)}
            self.devices: dict[str, str | None] = dict.fromkeys(members)
        else:
            groups = gpu_groups(settings, os.environ.get("CUDA_VISIBLE_DEVICES"))
            self.devices = {f"engine-{i}": group for i, group in enumerate(groups)}
            members = {name: Member(name) for name in self.devices}
        self.fleet = Fleet(members, settings.restarts)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._misses: dict[str, int] = {}
        self.stalls = Stalls(settings.stall_limit)
        self._lost = asyncio.Event()
        self._client: Client | None = None
        self._ready = asyncio.Event()
        self._change = asyncio.Event()
        """Set, and replaced, when the loop has seen what is new."""

    async def run(self, client: Client, ready: asyncio.Event, cold: bool) -> str:
        """Work towards the target of the fleet and keep it there; ends with the reason once that is hopeless.

        ``ready`` is set when requests may be sent.
        """
        self._client, self._ready = client, ready
        loop = asyncio.get_running_loop()
        look_at = loop.time() + self.settings.probe_every
        patience_at: float | None = None
        try:
            await self._begin_anew()
            while True:
                self._take_endings()
                for action in self.fleet.next(self._tasks):
                    self._begin(action)
                if self.fleet.over is not None:
                    return self.fleet.over
                self._change.set()
                self._change = asyncio.Event()
                now = loop.time()
                if patience_at is None and any(m.phase is Phase.SERVING for m in self.fleet.members.values()):
                    patience_at = now + self.settings.patience
                if self.fleet.ready(cold, patience_at is not None and now >= patience_at):
                    ready.set()
                if now >= look_at:
                    self._look()
                    look_at = now + self.settings.probe_every
                await self._something()
        finally:
            await self._cancel()

    async def agreed(self) -> None:
        """Wait while engines differ in their weights and none that was started with the files has told who is right."""
        while self.fleet.disputed:
            await self._change.wait()

    async def settled(self) -> None:
        """Wait until all that engines show of their weights agrees, and none is being proven."""
        while not self.fleet.settled:
            await self._change.wait()

    async def lost(self) -> None:
        """Wait until it shows that prompts which are waited for have been lost: no engine has had any for long."""
        await self._lost.wait()

    async def wait_ended(self) -> None:
        """End the engines that the last entry spoilt, so that none of them is there for the next."""
        for member in self.fleet.members.values():
            if member.phase is Phase.ENDING:
                with suppress(EvaluationError):
                    await self.processes.stop(member.name, self.settings.grace)
        self._take_endings()

    # ---- the loop

    async def _something(self) -> None:
        """Wait until a task or a process ended, for a second at most."""
        change = asyncio.ensure_future(self.processes.change())
        try:
            await asyncio.wait(
                [change, *self._tasks.values(), *self._looks.values()],
                timeout=_TICK,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            change.cancel()
        for tasks in (self._tasks, self._looks):
            for name, task in list(tasks.items()):
                if task.done():
                    del tasks[name]
                    task.result()

    async def _cancel(self) -> None:
        tasks = [*self._tasks.values(), *self._looks.values()]
        self._tasks.clear()
        self._looks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _take_endings(self) -> None:
        for name in list(self.processes.endings):
            ending = self.processes.endings[name]
            reason = f"{ending.reason} (log: {ending.log})"
            if name == ROUTER:
                if self.fleet.router is Phase.SERVING:
                    del self.processes.endings[name]
                    self.say(f"the router ended: {reason}")
                    self._drop(ROUTER)
                    self.fleet.router_happened(Phase.DOWN, reason)
                continue
            member = self.fleet.members[name]
            # Whoever starts it tells of an end during the start: it knows about clashing ports.
            if member.phase in (Phase.DOWN, Phase.BARRED) or (member.phase is Phase.STARTING and name in self._tasks):
                continue
            del self.processes.endings[name]
            if member.phase is not Phase.ENDING:
                self.say(f"{name} ended: {reason}")
            self._drop(name)
            self.fleet.happened(name, Event.GONE, reason if member.phase is not Phase.ENDING else "")
            self._leave(name)

    def _begin(self, action: Action) -> None:
        name = action.name
        member = self.fleet.members.get(name)
        if member is None:
            self.fleet.router_happened(Phase.STARTING)
            self._spawn(ROUTER, self._start_router())
            return
        if action.kind is Kind.START:
            if member.phase is Phase.DOWN:
                self.fleet.happened(name, Event.START)
                work: Coroutine[Any, Any, None] = self._answers(name) if member.given else self._start(name)
            else:
                work = self._up(name)
        elif action.kind is Kind.LOAD:
            self.fleet.happened(name, Event.LOAD)
            work = self._load(name)
        elif action.kind is Kind.PROVE:
            work = self._prove(name)
        elif action.kind is Kind.JOIN:
            self.fleet.happened(name, Event.JOIN)
            work = self._join(name)
        else:
            if member.phase is not Phase.ENDING:
                self.fleet.happened(name, Event.FAIL, member.reason)
            work = self._end(name)
        self._spawn(name, work)

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        key = "" if name == ROUTER else name
        self._tasks[key] = asyncio.create_task(self._told(name, work))

    async def _told(self, name: str, work: Awaitable[None]) -> None:
        """Do something to an engine, or the router; what goes wrong is its failure."""
        try:
            await work
        except (CallError, EvaluationError) as error:
            if name == ROUTER:
                self.say(f"the router failed: {error}")
                with suppress(EvaluationError):
                    await self.processes.stop(ROUTER, 0)
                self.processes.endings.pop(ROUTER, None)
                self.fleet.router_happened(Phase.DOWN, str(error))
            else:
                self._fail(name, str(error))

    def _fail(self, name: str, reason: str) -> None:
        member = self.fleet.members[name]
        if member.phase in (Phase.DOWN, Phase.ENDING, Phase.BARRED):
            return
        self.say(f"{name} failed: {reason}")
        self.fleet.happened(name, Event.FAIL, reason)
        self._leave(name)

    # ---- what is done

    async def _start(self, name: str) -> None:
        target = self._target
        for tries in range(launch.CLASHES):
            port = launch.free_port()
            self.urls[name] = f"http://127.0.0.1:{port}"
            command = engine_command(self.settings, target.path, target.version, port)
            secrets = None if in_arguments(command) else self.keys.settings()
            if secrets is not None:
                command += ["--config", self.processes.private(name, FILE, secrets)]
            variables = launch.environment(self.settings.environment, os.environ, self.devices[name])
            self.say(f"{name} starts with {os.path.basename(target.path)}; its log: {self.processes.log_of(name)}")
            await self.processes.start(name, command, variables)
            try:
                await self._up(name)
                return
            except launch.Clash as error:
                if tries + 1 == launch.CLASHES:
                    self._gone(name, error)
            except launch.Ended as error:
                self._gone(name, error)
                return

    async def _up(self, name: str) -> None:
        """Wait for one that was started; for another entry, maybe."""
        try:
            said = await launch.engine_up(self.processes, name, self._engine(name), self.settings.start_limit)
        except launch.Ended as error:
            if self.fleet.members[name].starts:
                raise
            self._gone(name, error)
            return
        self.fleet.happened(name, Event.UP if said == self._target.version else Event.ANSWERS)

    def _gone(self, name: str, error: EvaluationError) -> None:
        self.processes.endings.pop(name, None)
        self.say(f"{name}: {error}")
        self.fleet.happened(name, Event.GONE, str(error))

    async def _answers(self, name: str) -> None:
        await launch.answers(self._engine(name), self.settings.answer_limit)
        self.fleet.happened(name, Event.ANSWERS)

    async def _load(self, name: str) -> None:
        engine, settings = self._engine(name), self.settings
        try:
            aborted = await loading.drain(engine, settings.drain_limit)
            self.fleet.happened(name, Event.TOLD)
            target = self._target
            await engine.load_weights(target.path, target.version, abort=aborted, limit=settings.load_limit)
        except CallError as error:
            if error.kind in _ENDING and await self._ends(name):
                if self.fleet.members[name].phase in (Phase.DRAINING, Phase.LOADING):
                    self.fleet.happened(name, Event.GONE, error.reason)
                return
            raise
        self.fleet.happened(name, Event.LOADED)

    async def _ends(self, name: str) -> bool:
        """Whether an engine that broke off a load ends; the loop takes the end of ours."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _END_LIMIT
        while loop.time() < until:
            if self.fleet.members[name].given:
                with suppress(CallError):
                    if await self._engine(name).ready():
                        await asyncio.sleep(_TICK)
                        if await self._engine(name).ready():
                            return False
            await asyncio.sleep(0.5)
        return self.fleet.members[name].given

    async def _prove(self, name: str) -> None:
        evidence = await loading.prove(self._engine(name), self._target.version)
        self.fleet.proved(name, evidence)
        if self.fleet.members[name].phase is Phase.ENDING:
            self.say(f"{name} failed: {self.fleet.members[name].reason}")

    async def _join(self, name: str) -> None:
        assert self._client is not None
        try:
            await launch.join(self._router, self.urls[name], self.settings.router_limit, self.keys.api)
        except CallError:
            # The router's fault, not the engine's.
            if self.fleet.members[name].phase is Phase.JOINING:
                self.fleet.happened(name, Event.LEFT)
            await asyncio.sleep(_TICK)
            return
        if self.fleet.members[name].phase is Phase.JOINING:
            self._misses[name] = 0
            self.fleet.happened(name, Event.JOINED)

    async def _end(self, name: str) -> None:
        await self._try_leave(name)
        if name in self.processes.running:
            await self.processes.stop(name, self.settings.grace)
        elif name not in self.processes.endings:
            self.fleet.happened(name, Event.GONE)

    async def _start_router(self) -> None:
        for tries in range(launch.CLASHES):
            # The same port again after an end: requests that wait find it there.
            port = int(self.router_url.rpartition(":")[2] or 0)
            if not port or tries or not launch.is_free(port):
                if self._ready.is_set():
                    self.fleet.give_up(f"the port of the router, {port}, was taken while it was replaced")
                    return
                port = launch.free_port()
            self.router_url = f"http://127.0.0.1:{port}"
            command = router_command(self.settings, port, launch.free_port())
            variables = launch.environment(self.settings.environment, os.environ)
            await self.processes.start(ROUTER, command, variables)
            try:
                await launch.router_up(self.processes, self._router, self.settings.router_limit)
                break
            except launch.Clash:
                if tries + 1 == launch.CLASHES:
                    raise
        self.fleet.router_happened(Phase.SERVING)

    # ---- looks

    def _look(self) -> None:
        for member in self.fleet.members.values():
            if member.phase is Phase.SERVING and member.name not in self._looks:
                self._looks[member.name] = asyncio.create_task(self._look_at(member.name))
        if self.fleet.router is Phase.SERVING and ROUTER not in self._looks:
            self._looks[ROUTER] = asyncio.create_task(self._look_at_router())

    async def _look_at(self, name: str) -> None:
        """See that an engine still generates, and with the weights that it should have."""
        engine, version = self._engine(name), self._target.version
        refused = False
        try:
            well = await engine.healthy(self.settings.probe_limit)
            said = (await engine.model_info(self.settings.probe_limit)).get("weight_version") if well else version
        except CallError as error:
            well, said, refused = False, version, error.kind == "refused"
        if self.fleet.members[name].phase is not Phase.SERVING or self._target.version != version:
            return
        if said != version:
            self._fail(name, f"somebody else gave it the weights {said}")
            return
        self._misses[name] = 0 if well else self._misses.get(name, 0) + 1
        if well and await self._stuck(name, engine) and self.fleet.members[name].phase is Phase.SERVING:
            self._fail(name, f"{shown(engine.url)} has requests, and generated nothing for {self.stalls.limit:g} s")
            return
        if self._misses[name] >= MISSES:
            if refused and self.fleet.members[name].given:
                self.say(f"{name} ({shown(engine.url)}) is gone")
                self.fleet.happened(name, Event.GONE, f"{shown(engine.url)}: nothing listens there")
                self._leave(name)
            else:
                self._fail(name, f"{shown(engine.url)} does not generate any more")

    async def _stuck(self, name: str, engine: Engine) -> bool:
        """Whether an engine does not get on with its requests; tells those who wait where no engine has any."""
        try:
            load = await engine.load()
        except CallError:
            self.stalls.forget(name)
            return False
        now = asyncio.get_running_loop().time()
        stuck = self.stalls.stuck(name, load, now)
        serving = [member.name for member in self.fleet.members.values() if member.phase is Phase.SERVING]
        if self.stalls.lost(serving, now):
            self.stalls.begin()
            self._lost.set()
            self._lost = asyncio.Event()
        return stuck

    async def _look_at_router(self) -> None:
        """See that the router answers and knows the engines that it should know."""
        try:
            known = {worker.url.rstrip("/") for worker in await self._router.workers()}
        except CallError as error:
            self._misses[ROUTER] = self._misses.get(ROUTER, 0) + 1
            if self._misses[ROUTER] >= MISSES and self.fleet.router is Phase.SERVING:
                self.say(f"the router does not answer: {error.reason}")
                with suppress(EvaluationError):
                    await self.processes.stop(ROUTER, 0)
            return
        self._misses[ROUTER] = 0
        for member in self.fleet.members.values():
            if member.phase is Phase.SERVING and self.urls[member.name] not in known:
                self.fleet.happened(member.name, Event.LEFT)

    # ---- names

    @property
    def _target(self) -> Target:
        assert self.fleet.target is not None
        return self.fleet.target

    @property
    def _router(self) -> Router:
        assert self._client is not None
        return Router(self._client, self.router_url)

    def _engine(self, name: str) -> Engine:
        assert self._client is not None
        return Engine(self._client, self.urls[name], self.keys.admin)

    def _drop(self, name: str) -> None:
        """Stop what is being done to one that is gone."""
        for tasks, key in ((self._tasks, "" if name == ROUTER else name), (self._looks, name)):
            task = tasks.pop(key, None)
            if task is not None:
                task.cancel()

    def _leave(self, name: str) -> None:
        """Take an engine out of the router, in its own time."""
        key = f"leave {name}"
        if key not in self._looks and name in self.urls and self.fleet.router is Phase.SERVING:
            self._looks[key] = asyncio.create_task(self._try_leave(name))

    async def _try_leave(self, name: str) -> None:
        with suppress(CallError):
            if self.fleet.router is Phase.SERVING:
                await launch.leave(self._router, {self.urls[name]})

    async def _begin_anew(self) -> None:
        """Before another entry: no router that was given up half-way, and no engine in it that is not proven anew."""
        self._misses.clear()
        self.stalls.begin()
        if self.fleet.router is Phase.STARTING:
            await self.processes.stop(ROUTER, 0)
            self.processes.endings.pop(ROUTER, None)
            self.fleet.router_happened(Phase.DOWN)
        elif self.fleet.router is Phase.SERVING:
            with suppress(CallError):
                await launch.leave(self._router, set(self.urls.values()))
