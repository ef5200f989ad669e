"""What a session started from: code, packages, command, host; recorded once, in the background (protocol.md 6.14).

Does: notes at once what may change later (arguments, working folder, variables), the rest in a thread of its own, and
puts three files into ``files/``: the changes, the packages, and last the record that names them. Nothing here raises,
and nothing of it is waited for but briefly at the end. Leaves to others: git (``git``), what is a secret
(``core.redaction``), which variables count (``core.variables``).
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from fsrun.core import codec, layout
from fsrun.core.records import PROTOCOL, rfc3339
from fsrun.core.redaction import redact_argv, redact_text
from fsrun.core.timing import CAPTURE_DELAY, STORE_RETRY
from fsrun.core.variables import pick
from fsrun.disk import identity
from fsrun.disk.clock import Clock
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import Store
from fsrun.run import git
from fsrun.run.probes import Gpus, load_nvml, read_text

_MAX_ARGUMENTS, _MAX_ARGUMENT = 500, 2000
_MAX_PACKAGES = 10_000
_PACKAGES_LIMIT = 5.0
"""Seconds that listing packages may take."""
_TRIES = 5
"""How often a file is tried to be put where the folder does not take it."""


class Environment:
    """The environment of one session, from ``start`` to ``close``; ``code``: with code and packages."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        run_dir: str,
        job: str,
        session: int,
        *,
        warn: Callable[[str], None],
        code: bool = True,
    ) -> None:
        self._store = Store(fs, run_dir, job, session)
        self._clock = clock
        self._warn = warn
        self._code = code
        self._began, self._folders = note_start(os.environ)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._record, name=f"fsrun-environment-{job}", daemon=True)

    def start(self) -> None:
        """Begin. After a crash: the record with the files it names; or some of these files; or nothing."""
        with suppress(RuntimeError):  # the interpreter shuts down
            self._thread.start()

    def stop(self) -> None:
        """End soon, with what is known by then."""
        self._stop.set()

    def close(self, timeout: float) -> bool:
        """Wait for the record; what takes too long is left out of it. Whether it ended within ``timeout`` seconds."""
        if self._thread.ident is None:
            return True
        self._thread.join(timeout * 0.6)
        self._stop.set()
        self._thread.join(timeout * 0.4)
        return not self._thread.is_alive()

    def _record(self) -> None:
        self._stop.wait(CAPTURE_DELAY)
        try:
            self._put_all()
        except Exception as error:  # noqa: BLE001 - the training goes on without its environment
            self._warn(f"{self._store.root}: the environment is not recorded: {type(error).__name__}: {error}")

    def _put_all(self) -> None:
        job, session = self._store.job, self._store.session
        record: dict[str, Any] = {"protocol": PROTOCOL, "job": job, "session": session}
        record |= {"recorded": rfc3339(self._clock.now_ns()), **self._began, **describe_host()}
        if self._code:
            record |= self._put_code()
        self._put(layout.environment_name(job, session), codec.encode_record(record))

    def _put_code(self) -> dict[str, Any]:
        """Put what is said of code and packages; returns what the record says of it."""
        job, session = self._store.job, self._store.session
        state = None
        for folder in self._folders:
            state = state or git.look(folder, self._stop)
        facts = None if state is None else {**state.facts, "diff": None}
        if state is not None and facts is not None and state.diff:
            name = layout.diff_name(job, session)
            self._put(name, state.diff)
            facts["diff"] = f"{layout.FILES}/{name}"
        packages, cut = list_packages(self._stop)
        name = layout.packages_name(job, session)
        self._put(name, "".join(f"{line}\n" for line in packages).encode("utf-8", "replace"))
        return {"git": facts, "packages": {"path": f"{layout.FILES}/{name}", "count": len(packages), "cut": cut}}

    def _put(self, name: str, data: bytes) -> None:
        for left in reversed(range(_TRIES)):
            try:
                self._store.put_if_absent(layout.FILES, name, data)
                return
            except OSError:
                if not left or self._stop.wait(STORE_RETRY):
                    raise


def note_start(environ: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Command, working folder, script, variables as they are now, as best it can be told; and where the code may be."""
    argv = getattr(sys, "argv", None) or []
    command = getattr(sys, "orig_argv", None) or [sys.executable or "", *argv]
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        folder = os.getcwd()
    except OSError:
        folder = None
    if not isinstance(script, str) or script.startswith("<"):  # such as <stdin>
        script = None
    if script is not None and not os.path.isabs(script):
        # Where the working folder is gone a relative name leads nowhere.
        script = os.path.join(folder, script) if folder else None
    began = {
        "command": _arguments(command),
        "arguments": _arguments(argv),
        "directory": None if folder is None else redact_text(folder),
        "script": None if script is None else redact_text(os.path.normpath(script)),
        "variables": pick(environ),
    }
    return began, code_folders(script, folder)


def _arguments(argv: object) -> list[str]:
    if not isinstance(argv, list | tuple):
        return []
    known = redact_argv([str(argument)[: 4 * _MAX_ARGUMENT] for argument in argv[:_MAX_ARGUMENTS]])
    cut = [f"{text[:_MAX_ARGUMENT]} [cut]" if len(text) > _MAX_ARGUMENT else text for text in known]
    return cut if len(argv) <= _MAX_ARGUMENTS else [*cut, f"[cut: {len(argv) - _MAX_ARGUMENTS} more]"]


def code_folders(script: str | None, folder: str | None) -> list[str]:
    """Where the code may be: the script's folder unless that is an installed tool's, then the working folder."""
    found = []
    if script is not None and not script.startswith((f"{sys.prefix}/", f"{sys.base_prefix}/lib/")):
        place = os.path.dirname(script)
        found.append(place if os.path.isdir(place) else os.path.dirname(place))  # a zipapp stands for its folder
    return [place for place in dict.fromkeys((*found, folder)) if place and os.path.isdir(place)]


def describe_host() -> dict[str, Any]:
    """Python, system and machine."""
    import platform

    memory = None
    cores: int | None = None
    with suppress(Exception):
        import psutil

        memory, cores = psutil.virtual_memory().total, psutil.cpu_count(logical=False)
    uname = os.uname()
    return {
        "host": socket.gethostname(),
        "user": identity.own().user,
        "pid": os.getpid(),
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "executable": sys.executable or None,
            "prefix": sys.prefix,
        },
        "system": {"kernel": f"{uname.sysname} {uname.release} {uname.machine}", "name": _system_name()},
        "container": container(read_text, os.path.exists),
        "cpu": {"model": _cpu_model(), "count": os.cpu_count(), "cores": cores, "usable": _usable()},
        "memory": memory,
        "gpus": _gpus(),
    }


def _usable() -> int | None:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _system_name() -> str | None:
    for line in (read_text("/etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip("\"'")
    return None


def _cpu_model() -> str | None:
    for line in (read_text("/proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return None


def _gpus() -> list[dict[str, Any]]:
    """The GPUs, by NVML, else by what the driver says in /proc."""
    found = Gpus(load_nvml(), {}).describe()
    if found:
        return found
    folder = "/proc/driver/nvidia/gpus"
    with suppress(OSError):
        for index, name in enumerate(sorted(os.listdir(folder))):
            lines = (read_text(f"{folder}/{name}/information") or "").splitlines()
            facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
            found.append({"index": index, "name": facts.get("Model"), "uuid": facts.get("GPU UUID"), "memory": None})
    return found


def container(read: Callable[[str], str | None], exists: Callable[[str], bool]) -> str | None:
    """What kind of container this is, as far as it shows."""
    for path, kind in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman"), ("/.singularity.d", "singularity")):
        if exists(path):
            return kind
    groups = read("/proc/1/cgroup") or ""
    for word, kind in (("kubepods", "kubernetes"), ("docker", "docker"), ("containerd", "containerd"), ("lxc", "lxc")):
        if word in groups:
            return kind
    return None


def list_packages(stop: threading.Event) -> tuple[list[str], bool]:
    """Lines ``name==version``, sorted, and whether time or number cut the list."""
    from importlib.metadata import distributions

    found: dict[str, str] = {}
    end = time.monotonic() + _PACKAGES_LIMIT
    for distribution in distributions():
        if stop.is_set() or time.monotonic() > end or len(found) >= _MAX_PACKAGES:
            return sorted(found.values(), key=str.lower), True
        with suppress(Exception):  # whatever stands in a broken installation
            metadata = distribution.metadata
            name, version = str(metadata["Name"]).strip(), str(metadata["Version"]).strip()
            # The first one on the path is the one that is imported.
            found.setdefault(name.lower().replace("_", "-"), f"{name}=={version}"[:300])
        time.sleep(0)
    return sorted(found.values(), key=str.lower), False
