"""One process of a client that is told what to do, line by line, and what it answers.

Does: starts it, asks, kills, stops and continues it; waits for no answer for ever. Leaves to others: what an answer
should be.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

MARK = "CONFORMANCE_PLACE"
"""The variable by which a process is known for one of a scenario: its folder."""

LIMIT = 90.0
"""Seconds in which every command has its answer, on a busy machine too; ``open`` may take some T more."""


class Failure(Exception):
    """What a client did wrong, where, and the rule that it broke."""

    def __init__(self, what: str, rule: str = "", where: object = "") -> None:
        super().__init__(what)
        self.what, self.rule, self.where = what, rule, str(where)

    def __str__(self) -> str:
        rule = f"protocol.md {self.rule}" if self.rule else "docs/clients.md"
        return f"{self.what} ({f'{self.where}; ' if self.where else ''}{rule})"


def expect(condition: object, what: str, rule: str = "", where: object = "") -> None:
    """Raise ``Failure`` unless the condition holds."""
    if not condition:
        raise Failure(what, rule, where)


class Driven:
    """A client in ``drive``. ``heard`` is called after each answer, before it is returned."""

    def __init__(
        self, words: Sequence[str], run: Path, errors: Path, environ: Mapping[str, str], heard: Callable[[], object]
    ) -> None:
        self.words = words
        self._heard = heard
        self._errors = errors
        self._lines: queue.Queue[str | None] = queue.Queue()
        with errors.open("ab") as log:
            # A group of its own: what it starts (a helper that beats) can be stopped and cleared with it.
            self.process = subprocess.Popen(
                [*words, "drive", str(run)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=dict(environ),
                start_new_session=True,
            )
        self.pid = self.process.pid
        self._mark = environ.get(MARK)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith(b"\n"):  # What a killed client wrote half is no answer.
                self._lines.put(line.decode("utf-8", "surrogateescape"))
        self._lines.put(None)

    def send(self, *fields: object) -> None:
        """Write a command; one that is gone does not hear it."""
        self._write("\t".join(map(str, fields)) + "\n")

    def send_half(self, *fields: object) -> None:
        """Write a command without its newline."""
        self._write("\t".join(map(str, fields)))

    def _write(self, text: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(text.encode("utf-8", "surrogateescape"))
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def answer(self, limit: float = LIMIT) -> list[str]:
        """Return the fields of the next answer. Raises ``Failure`` where there is none."""
        found = self.next_answer(limit)
        if found is None:
            code = self.leave()
            raise Failure(f"{self.name} ended with code {code} instead of answering; it said: {self.said()}")
        return found

    def next_answer(self, limit: float = LIMIT) -> list[str] | None:
        """The fields of the next answer; None where the process has ended."""
        try:
            line = self._lines.get(timeout=limit)
        except queue.Empty:
            raise Failure(f"{self.name} gave no answer within {limit:g} s; it said: {self.said()}") from None
        self._heard()
        return None if line is None else line.removesuffix("\n").split("\t")

    def ask(self, *fields: object, limit: float = LIMIT) -> list[str]:
        """Write a command and return the fields of its answer."""
        self.send(*fields)
        return self.answer(limit)

    def must(self, command: Sequence[object], *answer: object, rule: str = "", limit: float = LIMIT) -> list[str]:
        """Ask, and expect an answer that begins with these fields; returns all of them."""
        found = self.ask(*command, limit=limit)
        shown = " ".join(map(str, command))
        expect(
            found[: len(answer)] == list(map(str, answer)),
            f"{shown!r} was answered {' '.join(found)!r}, expected {' '.join(map(str, answer))!r}",
            rule,
        )
        return found

    def kill(self) -> None:
        """SIGKILL the one process that was started, and reap it; its helpers have to find that out."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGSTOP it with all that it has started."""
        os.killpg(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        os.killpg(self.pid, signal.SIGCONT)

    def end_input(self) -> None:
        """Close its standard input."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass

    def leave(self, limit: float = LIMIT) -> int:
        """Wait for its end; returns the exit code."""
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} did not end within {limit:g} s; it said: {self.said()}") from None

    def close(self, *fields: object) -> None:
        """``close``, as finished unless told otherwise; it must end with 0."""
        self.must(["close", *(fields or ("finished",))], "closed", rule="4.3")
        code = self.leave()
        expect(code == 0, f"{self.name} was closed and ended with code {code}")

    def clear(self) -> None:
        """End what is left of it, its helpers too."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for process in self._helpers():
            process.kill()
        self.end_input()
        self._reader.join(5.0)
        if self.process.stdout is not None and not self._reader.is_alive():
            self.process.stdout.close()

    def _helpers(self) -> list[psutil.Process]:
        """What still runs of its group. Its own number is free by now and may be another's: the mark tells."""
        found = []
        for process in psutil.process_iter():
            try:
                if os.getpgid(process.pid) == self.pid and process.environ().get(MARK) == self._mark:
                    found.append(process)
            except (OSError, psutil.Error):
                continue
        return found

    @property
    def name(self) -> str:
        """What to call it."""
        return " ".join(self.words)

    def said(self) -> str:
        """The end of what it wrote to standard error."""
        text = self._errors.read_text("utf-8", "replace").strip()
        return text[-600:] or "nothing"
