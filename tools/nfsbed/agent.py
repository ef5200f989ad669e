"""Runs on a host of a bed: starts the processes that ``remote`` asks for, one a connection, and passes on their lines.

A request is one JSON line: ``{"clock": true}`` asks for the host's clock; ``{"argv": [...], "env": {...}, "cwd": DIR}``
starts a process, whose lines come back as ``{"out": LINE}`` and ``{"err": LINE}``, its end as ``{"exit": CODE}``.
While it runs, ``{"signal": N}`` goes to its process group and ``{"in": LINE}`` to its stdin. Hanging up kills it.
"""

from __future__ import annotations

import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import IO, Any

PORT = 9000
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Connection(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self) -> None:
        self.lock = threading.Lock()
        line = self.rfile.readline()
        if not line:
            return
        request = json.loads(line)
        if "clock" in request:
            self.say(clock=time.clock_gettime(_CLOCK))
            return
        try:
            process = subprocess.Popen(
                request["argv"],
                env=request["env"],
                cwd=request["cwd"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            self.say(failed=f"{request['argv'][0]}: {error}")
            return
        self.say(pid=process.pid)
        threading.Thread(target=self.obey, args=(process,), daemon=True).start()
        readers = [
            threading.Thread(target=self.pass_on, args=(kind, stream), daemon=True)
            for kind, stream in (("out", process.stdout), ("err", process.stderr))
        ]
        for reader in readers:
            reader.start()
        process.wait()
        for reader in readers:
            reader.join(5)
        self.say(exit=process.returncode)

    def say(self, **event: Any) -> None:
        with suppress(OSError), self.lock:
            self.wfile.write(json.dumps(event).encode() + b"\n")

    def pass_on(self, kind: str, stream: IO[bytes]) -> None:
        for line in stream:
            self.say(**{kind: line.decode(errors="replace").rstrip("\n")})

    def obey(self, process: subprocess.Popen[bytes]) -> None:
        with suppress(OSError, ValueError):
            for line in self.rfile:
                order = json.loads(line)
                if "signal" in order:
                    kill(process, order["signal"])
                elif process.stdin is not None:
                    process.stdin.write(order["in"].encode() + b"\n")
                    process.stdin.flush()
        kill(process, signal.SIGKILL)


def kill(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, number)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64


def serve(address: str) -> None:
    Server((address, PORT), Connection).serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1])
