"""A fast stand-in for an SGLang engine, or for its router, that misbehaves on command.

In a test's own loop: ``async with Engine() as engine: ... engine.url ...``; in a process of its own, for tests of
memory and benches: ``python -m support.standin`` prints its URL and ends with its standard input.

It answers what the real ones were measured to answer (status, body), not how fast they do. What it does next is what
stands in its fields; a word in ``script`` is used up by one generation each:
``busy`` (503), ``full`` (429), ``broken`` (500), ``refused`` (400), ``denied`` (401), ``missing`` (404), ``cut``
(connection closed before an answer), ``torn`` (closed in the middle of the body), ``hang`` (never answers),
``abort`` (200, aborted), ``nonsense`` (200, no JSON), ``strange`` (200, JSON of another kind), ``endless`` (a body
without end), ``redirect`` (307).
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import orjson
from aiohttp import web

JSON = {"Content-Type": "application/json"}
NO_WORKERS = (
    b'{"error":{"type":"Service Unavailable","code":"no_available_workers",'
    b'"message":"No available workers (all circuits open or unhealthy)"}}'
)
SMG_NO_WORKERS = (
    b'{"error":{"type":"invalid_request_error","code":"model_not_found",'
    b'"message":"No worker available for model \'unknown\'","param":null}}'
)


class Server:
    """What both have in common: a port, a count of what was asked, and the script."""

    def __init__(self) -> None:
        self.url = ""
        self.port = 0
        self.script: deque[str] = deque()
        self.paths: list[str] = []
        """The paths that were asked, generations left out."""
        self.asked = 0
        self.running = 0
        self.most = 0
        """The most generations that ran at one time."""
        self.peers: set[tuple[str, int]] = set()
        """The connections that generations came on."""
        self.headers: dict[str, str] = {}
        """Of the last request."""
        self._runner: web.ServerRunner | None = None
        self._ending = asyncio.Event()

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; at the same port again after ``stop``."""
        self._ending.clear()
        server = web.Server(self._handle, keepalive_timeout=5)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, backlog=4096, reuse_address=True)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        """Nothing listens any more, and all connections are cut."""
        self._ending.set()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.headers = dict(request.headers)
        if request.path != "/generate":
            self.paths.append(request.path)
            return await self.answer(request.path, request)
        self.asked += 1
        self.peers.add(request.transport.get_extra_info("peername"))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self.generate(request)
        finally:
            self.running -= 1

    async def answer(self, path: str, request: web.BaseRequest) -> web.StreamResponse:
        raise NotImplementedError

    async def generate(self, request: web.BaseRequest) -> web.StreamResponse:
        raise NotImplementedError

    async def misbehave(self, word: str, request: web.BaseRequest) -> web.StreamResponse:
        """Do what a word of the script says."""
        simple = {
            "busy": (503, b'{"error":{"message":"Service Unavailable"}}'),
            "workerless": (503, NO_WORKERS),
            "workerless-smg": (404, SMG_NO_WORKERS),
            "full": (429, b'{"error":{"message":"Too many requests"}}'),
            "broken": (500, b'{"error":{"message":"Internal Server Error"}}'),
            "refused": (
                400,
                b'{"error":{"message":"The input (9 tokens) is longer than the model\'s context length"}}',
            ),
            "denied": (401, b'{"error":"Unauthorized"}'),
            "missing": (404, b'{"detail":"Not Found"}'),
            "nonsense": (200, b"<html>It works!</html>"),
            "strange": (200, b'{"choices":[]}'),
        }
        if word in simple:
            status, body = simple[word]
            return reply(body, status)
        if word == "redirect":
            return web.Response(status=307, headers={"Location": "/elsewhere"})
        if word == "hang":
            await self._ending.wait()
        if word == "torn":
            response = web.StreamResponse(headers={**JSON, "Content-Length": "1000"})
            await response.prepare(request)
            await response.write(b'{"text":"half of')
        if word == "endless":
            response = web.StreamResponse(headers=JSON)
            await response.prepare(request)
            while True:
                await response.write(b" " * 65536)
        if request.transport is not None:
            request.transport.close()  # cut, torn
        return web.Response()


class Engine(Server):
    """One engine."""

    def __init__(
        self,
        *,
        version: str = "default",
        model: str = "/models/toy",
        context: int | None = 4096,
        api_key: str | None = None,
        say: Callable[[list[int], dict[str, Any]], str] | None = None,
    ) -> None:
        super().__init__()
        self.version = version
        self.model = model
        self.context = context
        self.api_key = api_key
        self.say = say or (lambda ids, sampling: "#### 42")
        """What it answers to the ids and sampling parameters of a prompt."""
        self.delay = 0.0
        """Seconds that a generation takes."""
        self.together = 0
        """None is answered before so many run at one time; from then on they are."""
        self.changes: dict[int, str] = {}
        """New versions of the weights, by the number of answers before them."""
        self.spans: list[str] | None = None
        """The versions that each answer names, if not just the present one."""
        self.loading = False
        self.busy_for = 0
        """The first so many generations are answered with 503."""
        self.others = 0
        """Requests of somebody else that run."""
        self.checksum: str | None = None
        """Of its weights; None: it has no endpoint that tells."""
        self.lacks: set[str] = set()
        """Endpoints that this version does not have."""
        self.answered = 0
        self.prompts: list[list[int]] = []
        self.sampling: dict[str, Any] = {}
        """Of the last generation."""
        self.keep_prompts = False
        self._enough = asyncio.Event()
        self._going = asyncio.Event()
        self._going.set()

    @property
    def paused(self) -> bool:
        return not self._going.is_set()

    @paused.setter
    def paused(self, value: bool) -> None:
        (self._going.clear if value else self._going.set)()

    async def answer(self, path: str, request: web.BaseRequest) -> web.StreamResponse:
        if path in self.lacks:
            return reply(b'{"detail":"Not Found"}', 404)
        if self.api_key is not None and request.headers.get("Authorization") != f"Bearer {self.api_key}":
            return reply(b'{"error":"Unauthorized"}', 401)
        if path in ("/health", "/ready", "/health_generate"):
            if self.paused and path != "/ready":
                await self._ending.wait()  # the real one: 503 after 20 s
            return web.Response(status=503 if self.loading or self.paused else 200)
        if path == "/model_info":
            return reply({"model_path": self.model, "weight_version": self.version, "tokenizer_path": self.model})
        if path == "/v1/models":
            return reply({"object": "list", "data": [{"id": self.model, "max_model_len": self.context}]})
        if path == "/server_info":
            return reply({"version": "0.5.23", "dtype": "float32", "tp_size": 1, "api_key": "never recorded"})
        if path == "/v1/loads":
            return reply({"loads": [{"num_running_reqs": self.running + self.others, "num_waiting_reqs": 0}]})
        if path == "/weights_checker" and self.checksum is not None:
            return reply({"success": True, "message": "ok", "per_engine_checksum": self.checksum})
        if path == "/pause_generation":
            self.paused = True
        if path == "/continue_generation":
            self.paused = False
        if path in ("/pause_generation", "/continue_generation", "/flush_cache", "/abort_request"):
            return reply({"status": "ok"})
        return reply(b'{"detail":"Not Found"}', 404)

    async def generate(self, request: web.BaseRequest) -> web.StreamResponse:
        asked = orjson.loads(await request.read())
        if self.api_key is not None and request.headers.get("Authorization") != f"Bearer {self.api_key}":
            return reply(b'{"error":"Unauthorized"}', 401)
        if self.busy_for > 0:
            self.busy_for -= 1
            return await self.misbehave("busy", request)
        if self.script:
            word = self.script.popleft()
            if word != "abort":
                return await self.misbehave(word, request)
            return reply(self.body("", {"type": "abort", "message": "Abort in waiting queue"}, 0, 0))
        await self._going.wait()
        if self.together:
            if self.running >= self.together:
                self._enough.set()
            await self._enough.wait()
        if self.delay:
            await asyncio.sleep(self.delay)
        ids, self.sampling = asked["input_ids"], asked["sampling_params"]
        if self.keep_prompts:
            self.prompts.append(ids)
        longest = self.sampling.get("max_new_tokens", 128)
        if self.context is not None and len(ids) + longest > self.context:
            return await self.misbehave("refused", request)
        text = self.say(ids, self.sampling)
        tokens = len(text.split())
        self.version = self.changes.get(self.answered, self.version)
        self.answered += 1
        cut = tokens > longest
        if cut:
            text, tokens = " ".join(text.split()[:longest]), longest
        reason = {"type": "length", "length": longest} if cut else {"type": "stop", "matched": 2}
        return reply(self.body(text, reason, len(ids), tokens))

    def body(self, text: str, reason: dict[str, Any], prompt: int, tokens: int) -> dict[str, Any]:
        versions = self.spans or [self.version]
        meta = {
            "id": "0123456789abcdef",
            "finish_reason": reason,
            "prompt_tokens": prompt,
            "completion_tokens": tokens,
            "cached_tokens": 0,
            "weight_version": versions[-1],
            "weight_versions": [{"version": v, "start": i, "end": i + 1} for i, v in enumerate(versions)],
            "e2e_latency": 0.001,
        }
        return {"text": text, "output_ids": [1] * min(tokens, 4), "meta_info": meta}


class Router(Server):
    """A router before engines of the same loop; it counts failures as the real one does."""

    def __init__(self, *engines: Engine, smg: bool = False) -> None:
        super().__init__()
        self.engines = list(engines)
        self.smg = smg
        self.pending: dict[str, str] = {}
        """Workers that are being added: URL and state; the router does not list them."""
        self.unhealthy: set[str] = set()
        self.breaks_at: int | None = None
        """Failures in a row (400 is one) that open a worker's breaker."""
        self.breaks_for = 60.0
        self.failures: dict[str, int] = {}
        self.open_until: dict[str, float] = {}
        self.lacks: set[str] = set()
        self._turn = 0

    async def answer(self, path: str, request: web.BaseRequest) -> web.StreamResponse:
        if path in self.lacks:
            return reply(b"", 404)
        if path == "/health":
            return web.Response(text="OK")
        if path == "/readiness":
            ready = any(engine.url not in self.unhealthy for engine in self.engines)
            return reply({"status": "ready" if ready else "not ready"}, 200 if ready else 503)
        if path == "/workers":
            return reply({"workers": [self._row(engine.url) for engine in self.engines], "total": len(self.engines)})
        if path.startswith("/workers/"):
            wanted = path.removeprefix("/workers/")
            for url, state in self.pending.items():
                if wanted == worker_id(url):
                    return reply({"id": wanted, "url": url, "is_healthy": False, "job_status": {"status": state}})
            for engine in self.engines:
                if wanted == worker_id(engine.url):
                    return reply(self._row(engine.url))
            return reply({"error": f"Worker {wanted} not found", "code": "WORKER_NOT_FOUND"}, 404)
        if path == "/flush_cache":
            return reply({"status": "success"})
        return reply(b"", 404)

    def _row(self, url: str) -> dict[str, Any]:
        return {"id": worker_id(url), "url": url, "is_healthy": url not in self.unhealthy, "load": 0}

    async def generate(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.script:
            return await self.misbehave(self.script.popleft(), request)
        now = asyncio.get_running_loop().time()
        ready = [
            engine
            for engine in self.engines
            if engine.url not in self.unhealthy and self.open_until.get(engine.url, 0.0) <= now
        ]
        if not ready:
            return await self.misbehave("workerless-smg" if self.smg else "workerless", request)
        self._turn += 1
        engine = ready[self._turn % len(ready)]
        engine.asked += 1
        response = await engine.generate(request)
        failed = response.status >= 400
        self.failures[engine.url] = self.failures.get(engine.url, 0) + 1 if failed else 0
        if self.breaks_at is not None and self.failures[engine.url] >= self.breaks_at:
            self.open_until[engine.url] = now + self.breaks_for
            self.failures[engine.url] = 0
        return response


def worker_id(url: str) -> str:
    return f"id-{url.rpartition(':')[2]}"


def reply(value: Any, status: int = 200) -> web.Response:
    body = value if isinstance(value, bytes) else orjson.dumps(value)
    return web.Response(body=body, status=status, headers=JSON)


def main() -> None:
    """An engine by itself, until its standard input ends. STANDIN_WORDS, STANDIN_DELAY, STANDIN_TOGETHER: see there."""

    async def serve() -> None:
        words = int(os.environ.get("STANDIN_WORDS", "1"))
        text = "word " * (words - 1) + "42"
        engine = Engine(context=None, say=lambda ids, sampling: text)
        engine.delay = float(os.environ.get("STANDIN_DELAY", "0"))
        engine.together = int(os.environ.get("STANDIN_TOGETHER", "0"))
        async with engine:
            print(engine.url, flush=True)
            ended = asyncio.Event()
            loop = asyncio.get_running_loop()

            def wait() -> None:
                sys.stdin.buffer.read()
                loop.call_soon_threadsafe(ended.set)

            threading.Thread(target=wait, daemon=True).start()
            await ended.wait()
            print(f"{engine.asked} {engine.most} {len(engine.peers)}", flush=True)

    asyncio.run(serve())


if __name__ == "__main__":
    main()
