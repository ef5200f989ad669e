"""Stands where SGLang and its routers stand: ``python -m sglang.launch_server``, ``-m sglang_router.launch_router``,
``-m smg launch``, as fast processes without a model.

An engine reads its weights, here a line of text, from ``content.txt`` in the model's folder, and answers every prompt
with it. What it does wrong is said in ``behave.json`` there: ``start`` (die, clash), ``load`` (die, refuse, hang, mix,
ignore), ``generate`` (hang, die), ``health`` (hang). ``python(folder)`` makes a program for ``--sglang-python``.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

CLASHED, MIXED, DIED = "clashed", "mixed", "died"
"""Files that say that it went wrong once, which is enough."""


def python(folder: Path) -> str:
    """An executable that takes the arguments of a Python which has SGLang."""
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" "$@"\n')
    program.chmod(0o755)
    return str(program)


def is_first(folder: str | Path, name: str) -> bool:
    """Whether no other engine was here before; of two at the same moment one is the first."""
    try:
        Path(folder, name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class Engine:
    """What an engine holds and says."""

    def __init__(self, options: dict[str, str]) -> None:
        self.port = int(options["--port"])
        self.version = options["--weight-version"]
        self.path = options["--model-path"]
        self.content = (Path(self.path) / "content.txt").read_text()
        self.keys = keys_of(options)
        self.running = 0
        self.aborted = asyncio.Event()

    def behaviour(self, path: str, moment: str) -> str:
        try:
            return json.loads((Path(path) / "behave.json").read_text()).get(moment, "")
        except FileNotFoundError:
            return ""

    def routes(self, web: Any) -> list[Any]:
        return [
            web.get("/model_info", self.info),
            web.get("/ready", self.well),
            web.get("/health", self.health),
            web.get("/v1/models", self.models),
            web.get("/server_info", self.server),
            web.get("/v1/loads", self.loads),
            web.post("/update_weights_from_disk", self.load),
            web.post("/weights_checker", self.checksum),
            web.post("/abort_request", self.abort),
            web.post("/generate", self.generate),
        ]

    async def info(self, _: Any) -> Any:
        return said({"model_path": self.path, "weight_version": self.version})

    async def well(self, _: Any) -> Any:
        return said({})

    async def health(self, _: Any) -> Any:
        if self.behaviour(self.path, "health") == "hang":
            await asyncio.sleep(3600)
        return said({})

    async def models(self, _: Any) -> Any:
        return said({"data": [{"id": self.path, "max_model_len": 2048}]})

    async def server(self, _: Any) -> Any:
        return said({"version": "0.5.23", "dtype": "float32", "tp_size": 1, "pid": os.getpid()})

    async def loads(self, _: Any) -> Any:
        return said({"loads": [{"num_running_reqs": self.running, "num_waiting_reqs": 0, "num_used_tokens": 0}]})

    async def load(self, request: Any) -> Any:
        asked = await request.json()
        behaviour = self.behaviour(asked["model_path"], "load")
        if behaviour == "die":
            print("RuntimeError: shapes do not match", flush=True)
            os._exit(1)
        if behaviour == "refuse":
            return said({"success": False, "message": "no such weights"}, 400)
        if behaviour == "hang":
            await asyncio.sleep(3600)
        self.path, self.version = asked["model_path"], asked["weight_version"]
        content = (Path(self.path) / "content.txt").read_text()
        if behaviour in ("mix", "ignore") and is_first(self.path, MIXED):
            content = self.content + content if behaviour == "mix" else self.content
        self.content = content
        return said({"success": True, "message": "Succeeded"})

    async def checksum(self, _: Any) -> Any:
        return said({"success": True, "per_engine_checksum": hashlib.sha256(self.content.encode()).hexdigest()})

    async def abort(self, _: Any) -> Any:
        self.aborted.set()
        return said({})

    async def generate(self, request: Any) -> Any:
        await request.read()
        self.running += 1
        try:
            behaviour = self.behaviour(self.path, "generate")
            if behaviour == "die" and is_first(self.path, DIED):
                os._exit(1)
            if behaviour == "hang":
                await self.aborted.wait()
            await asyncio.sleep(0.01)
        finally:
            self.running -= 1
        meta = {
            "finish_reason": {"type": "stop", "matched": 3},
            "prompt_tokens": 3,
            "completion_tokens": 1,
            "weight_version": self.version,
            "weight_versions": [{"version": self.version, "start": 0, "end": 1}],
        }
        return said({"text": self.content, "output_ids": [1], "meta_info": meta})


ADMIN = ("/update_weights_from_disk", "/weights_checker", "/abort_request")
FREE = ("/ready", "/health")


def keys_of(options: dict[str, str]) -> dict[str, str]:
    """The keys in the file of settings of an engine."""
    if "--config" not in options:
        return {}
    lines = Path(options["--config"]).read_text().splitlines()
    return {name: json.loads(value) for name, _, value in (line.partition(": ") for line in lines)}


def guard(keys: dict[str, str]) -> Any:
    """What an engine asks for: its admin key for weights, its key for the rest."""
    from aiohttp import web

    @web.middleware
    async def ask(request: Any, handler: Any) -> Any:
        needed = keys.get("admin-api-key") if request.path in ADMIN else None
        needed = needed or keys.get("api-key")
        free = needed is None or request.path in FREE
        if free or request.headers.get("Authorization") == f"Bearer {needed}":
            return await handler(request)
        return said({"error": "Unauthorized"}, 401)

    return ask


class Router:
    """Sends to its workers in turn; one that does not answer is passed over."""

    def __init__(self) -> None:
        self.workers: list[str] = []
        self.keys: dict[str, str] = {}
        self.turn = 0
        self.session: Any = None

    def routes(self, web: Any) -> list[Any]:
        return [
            web.get("/health", self.well),
            web.get("/workers", self.listed),
            web.get("/workers/{id}", self.one),
            web.post("/workers", self.add),
            web.delete("/workers/{id}", self.remove),
            web.post("/generate", self.generate),
        ]

    async def well(self, _: Any) -> Any:
        return said({})

    async def listed(self, _: Any) -> Any:
        return said({"workers": [row(url) for url in self.workers]})

    async def one(self, request: Any) -> Any:
        found = [url for url in self.workers if number(url) == request.match_info["id"]]
        return said(row(found[0])) if found else said({"error": "not found"}, 404)

    async def add(self, request: Any) -> Any:
        asked = await request.json()
        url = asked["url"]
        self.keys[url] = asked.get("api_key", "")
        if url not in self.workers:
            self.workers.append(url)
        return said({"status": "accepted", "worker_id": number(url)}, 202)

    async def remove(self, request: Any) -> Any:
        self.workers = [url for url in self.workers if number(url) != request.match_info["id"]]
        return said({}, 202)

    async def generate(self, request: Any) -> Any:
        import aiohttp

        body = await request.read()
        for _ in range(len(self.workers)):
            self.turn += 1
            url = self.workers[self.turn % len(self.workers)]
            try:
                headers = {"Authorization": f"Bearer {self.keys[url]}"} if self.keys[url] else {}
                async with self.session.post(f"{url}/generate", data=body, headers=headers) as answer:
                    return said(await answer.json(), answer.status)
            except aiohttp.ClientError:
                continue
        return said({"error": {"code": "no_available_workers", "message": "No available workers"}}, 503)


def row(url: str) -> dict[str, Any]:
    return {"id": number(url), "url": url, "is_healthy": True}


def number(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:12]


def said(value: Any, status: int = 200) -> Any:
    from aiohttp import web

    return web.json_response(value, status=status)


async def serve(place: Engine | Router, port: int) -> None:
    import aiohttp
    from aiohttp import web

    app = web.Application(middlewares=[guard(place.keys)] if isinstance(place, Engine) else [])
    app.add_routes(place.routes(web))
    runner = web.AppRunner(app)
    await runner.setup()
    if isinstance(place, Router):
        place.session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60))
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print(f"serving on {port}", flush=True)
    await asyncio.Event().wait()


def main(arguments: list[str]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if arguments[:2] == ["-P", "-c"]:
        print(json.dumps({"sglang": "0.5.23", "sglang-router": "0.3.2", "smg": "1.13.0"}))
        return
    module = arguments[1]
    options = dict(itertools.pairwise(arguments))
    if module == "sglang.launch_server":
        if "--nonsense" in options:
            print("usage: ...\nlaunch_server.py: error: unrecognized arguments: --nonsense", flush=True)
            sys.exit(2)
        path = Path(options["--model-path"])
        engine = Engine(options)
        behaviour = engine.behaviour(str(path), "start")
        if behaviour == "die":
            print("ValueError: unknown model type", flush=True)
            sys.exit(1)
        if behaviour == "clash" and is_first(path, CLASHED):
            print("OSError: [Errno 98] address already in use", flush=True)
            sys.exit(1)
        asyncio.run(serve(engine, engine.port))
    else:
        asyncio.run(serve(Router(), int(options["--port"])))


if __name__ == "__main__":
    main(sys.argv[1:])
