"""What an SGLang engine and its router are asked, call by call, and what their answers hold.

Does: one method a call, for SGLang 0.5 engines and for sglang-router 0.3 and smg 1.13, which differ in a few answers.
Every call raises ``http.CallError`` and nothing else; none is tried again here. Leaves to others: retries (``http``),
when to call what (``generation``, ``preflight``, ``fleet``).

A router forwards generation alone: weights, pauses and what an engine says of itself are asked of each engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fsrun.adapters.http import CallError, Client, Reply

NEEDS_ADMIN = "an engine with --admin-api-key wants that one for this: FSRUN_EVAL_ADMIN_API_KEY"
HEALTH_LIMIT = 25.0
"""An engine takes 1 s for ``/health`` and, paused or stuck, 20 s until it says 503."""
READY_LIMIT = 5.0
WEIGHTS_LIMIT = 900.0
"""Reading the weights of a large model from a shared disk takes minutes."""


@dataclass(frozen=True, slots=True)
class Load:
    """What an engine has to do now, all of its data-parallel ranks together."""

    running: int
    waiting: int
    used: int | None = None
    """Tokens in its cache, which grow with what it generates; None where it does not say."""

    @property
    def idle(self) -> bool:
        """Whether it runs nothing and nothing waits."""
        return not self.running and not self.waiting


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine. ``admin_key`` is what ``--admin-api-key`` asks for weights and pauses; else the client's key."""

    client: Client
    url: str
    admin_key: str | None = field(default=None, repr=False)

    async def model_info(self, limit: float | None = None) -> dict[str, Any]:
        """``model_path``, ``served_model_name``, ``weight_version``, ``tokenizer_path``, ..."""
        return (await self._get("/model_info", limit)).mapping()

    async def server_info(self, limit: float | None = None) -> dict[str, Any]:
        """Its arguments, its version, ``max_total_num_tokens``, ... (large)."""
        return (await self._get("/server_info", limit)).mapping()

    async def context_length(self, limit: float | None = None) -> int | None:
        """The most tokens of prompt and answer together; None where it does not say."""
        cards = (await self._get("/v1/models", limit)).mapping().get("data")
        for card in cards if isinstance(cards, list) else []:
            length = card.get("max_model_len") if isinstance(card, Mapping) else None
            if isinstance(length, int) and length > 0:
                return length
        return None

    async def ready(self) -> bool:
        """Whether it takes requests: 200 of ``/ready``, or of ``/health`` where there is no ``/ready``.

        Raises ``CallError`` where it cannot be reached; 503 while it loads, is paused or ends is False.
        """
        try:
            await self._get("/ready", READY_LIMIT)
        except CallError as error:
            if error.kind == "missing":
                return await self.healthy()
            if error.status == 503:
                return False
            raise
        return True

    async def healthy(self, limit: float = HEALTH_LIMIT) -> bool:
        """Whether it generates a token (``/health``: 1 s where all is well, 20 s where it hangs).

        Raises ``CallError`` where it cannot be reached; 503 and no answer within ``limit`` are False.
        """
        try:
            await self._get("/health", limit)
        except CallError as error:
            if error.status == 503 or error.kind == "hung":
                return False
            raise
        return True

    async def generate(self, request: Mapping[str, Any], limit: float) -> Any:
        """``/generate``: the JSON it answers."""
        return (await self.client.post(f"{self.url}/generate", request, limit=limit)).json()

    async def load(self) -> Load:
        """How many requests run and wait."""
        loads = (await self._get("/v1/loads?include=core", None)).mapping().get("loads")
        if not isinstance(loads, list):
            raise CallError("nonsense", f"{self.url}/v1/loads", "without loads")
        told = any("num_used_tokens" in row for row in loads if isinstance(row, Mapping))
        used = _sum(loads, "num_used_tokens") if told else None
        return Load(_sum(loads, "num_running_reqs"), _sum(loads, "num_waiting_reqs"), used)

    async def flush_cache(self, wait: float = 0.0) -> None:
        """Forget cached prefixes. Refused (400) while a request runs; ``wait``: seconds it may wait for that."""
        await self._post(f"/flush_cache?timeout={wait:g}", {}, wait + 30.0)

    async def load_weights(
        self,
        path: str,
        version: str,
        *,
        abort: bool = False,
        flush: bool = True,
        limit: float = WEIGHTS_LIMIT,
    ) -> None:
        """``update_weights_from_disk``: read the weights of a folder, labelled ``version``.

        Waits for running requests, or aborts them. Success proves little: tensors that the file lacks keep their old
        values. A folder with wrong shapes ends the engine (``cut`` or ``refused``). So verify the folder first
        (``weights.verify``), ask for the checksum after, and start the engine anew after a failure.
        """
        request = {
            "model_path": path,
            "weight_version": version,
            "abort_all_requests": abort,
            "flush_cache": flush,
        }
        self._succeeded(await self._post("/update_weights_from_disk", request, limit), "/update_weights_from_disk")

    async def label_weights(self, version: str, *, abort: bool = False) -> None:
        """Change the label of the weights alone (``update_weight_version``)."""
        request = {"new_version": version, "abort_all_requests": abort}
        self._succeeded(await self._post("/update_weight_version", request, None), "/update_weight_version")

    async def checksum(self, limit: float = 300.0) -> str | None:
        """A checksum of all weights it holds, over its ranks; None where this version has no such endpoint."""
        try:
            answer = (await self._post("/weights_checker", {"action": "checksum"}, limit)).mapping()
        except CallError as error:
            if error.kind == "missing":
                return None
            raise
        value = answer.get("per_engine_checksum")
        return value if isinstance(value, str) else None

    async def pause(self, mode: str = "retract") -> None:
        """Take no more: ``abort``, ``retract`` or ``in_place``. New requests hang until ``resume``."""
        await self._post("/pause_generation", {"mode": mode}, None)

    async def resume(self) -> None:
        """Go on (``continue_generation``)."""
        await self._post("/continue_generation", {}, None)

    async def abort(self, rid: str | None = None) -> None:
        """End one request, or all: they are answered with the finish reason ``abort``."""
        await self._post("/abort_request", {"rid": rid} if rid is not None else {"abort_all": True}, None)

    async def _get(self, path: str, limit: float | None) -> Reply:
        return await self.client.get(self.url + path, limit=limit)

    async def _post(self, path: str, value: Any, limit: float | None) -> Reply:
        try:
            return await self.client.post(self.url + path, value, limit=limit, key=self.admin_key)
        except CallError as error:
            if error.kind != "denied" or self.admin_key is not None:
                raise
            raise CallError("denied", error.url, NEEDS_ADMIN, error.status) from error

    def _succeeded(self, reply: Reply, path: str) -> None:
        answer = reply.mapping()
        if answer.get("success") is not True:
            raise CallError("rejected", self.url + path, str(answer.get("message") or "success is not true")[:300])


@dataclass(frozen=True, slots=True)
class Worker:
    """An engine as its router sees it."""

    id: str
    url: str
    healthy: bool
    """What its health checks say; an open breaker does not show here."""
    state: str = "ready"
    """``ready``; of one that is being added: ``pending``, ``processing`` or ``failed``; ``unhealthy``."""
    message: str | None = None
    """Why adding it failed."""
    load: int | None = None


@dataclass(frozen=True, slots=True)
class Router:
    """A router: sglang-router, or its successor smg."""

    client: Client
    url: str

    async def up(self) -> None:
        """Raise ``CallError`` where it does not answer. Proves nothing of its workers."""
        await self.client.get(f"{self.url}/health", limit=READY_LIMIT)

    async def ready(self) -> bool:
        """Whether it has a healthy worker; a worker with an open breaker counts as healthy."""
        try:
            await self.client.get(f"{self.url}/readiness", limit=READY_LIMIT)
        except CallError as error:
            if error.status == 503:
                return False
            raise
        return True

    async def workers(self) -> list[Worker]:
        """The workers it has registered. One that is still loading is not among them: ask ``worker`` for it."""
        answer = (await self.client.get(f"{self.url}/workers", limit=READY_LIMIT * 2)).mapping()
        rows = answer.get("workers")
        if not isinstance(rows, list):
            raise CallError("nonsense", f"{self.url}/workers", "without workers")
        return [self._worker(row) for row in rows if isinstance(row, Mapping)]

    async def worker(self, id: str) -> Worker | None:
        """One worker, also while it is being added; None where it is unknown (smg forgets one that failed)."""
        try:
            reply = await self.client.get(f"{self.url}/workers/{id}", limit=READY_LIMIT * 2)
        except CallError as error:
            if error.kind == "missing":
                return None
            raise
        return self._worker(reply.mapping())

    async def add(self, url: str, settings: Mapping[str, Any] | None = None) -> str:
        """Queue a worker; the id by which ``worker`` follows it. Accepted at once, also where nothing listens.

        ``settings``: such as the ``api_key`` that the engine asks for.
        """
        answer = (await self.client.post(f"{self.url}/workers", {"url": url, **(settings or {})})).mapping()
        return str(answer.get("worker_id") or answer.get("id") or "")

    async def remove(self, id: str) -> None:
        """Take a worker out; its running requests finish. One that is not there is no error."""
        try:
            await self.client.call("DELETE", f"{self.url}/workers/{id}")
        except CallError as error:
            if error.kind != "missing":
                raise

    async def generate(self, request: Mapping[str, Any], limit: float) -> Any:
        """``/generate`` of one of its workers: the JSON it answers."""
        return (await self.client.post(f"{self.url}/generate", request, limit=limit)).json()

    async def model_info(self) -> dict[str, Any]:
        """What one of its workers says of itself: for workers that cannot be asked from here."""
        return (await self.client.get(f"{self.url}/get_model_info")).mapping()

    async def flush_cache(self) -> None:
        """Forget cached prefixes, on all workers."""
        await self.client.post(f"{self.url}/flush_cache", {})

    def _worker(self, row: Mapping[str, Any]) -> Worker:
        # A router may know its engines by user and password: these are for calls, not for records.
        return _worker({**row, "url": self.client.known(str(row.get("url") or ""))})


def _worker(row: Mapping[str, Any]) -> Worker:
    healthy = row.get("is_healthy") is True
    job = row.get("job_status")
    state, message = "ready" if healthy else "unhealthy", None
    if not healthy and isinstance(job, Mapping):
        state = str(job.get("status") or state)
        message = str(job["message"])[:300] if job.get("message") else None
    elif not healthy and isinstance(row.get("status"), str):
        state = row["status"]
    load = row.get("load")
    return Worker(
        str(row.get("id") or row.get("url") or ""),
        str(row.get("url") or ""),
        healthy,
        state,
        message,
        load if isinstance(load, int) else None,
    )


def _sum(rows: Sequence[Any], name: str) -> int:
    values = [row.get(name) for row in rows if isinstance(row, Mapping)]
    return sum(value for value in values if isinstance(value, int))
