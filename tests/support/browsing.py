"""A viewer that really runs, and a page of it that remembers what should never happen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0
"""Seconds until a page that does not show what it should has failed: generous, since the machine may be busy."""


class Viewer:
    """``fsrun up`` on a root, at a port that was free."""

    def __init__(self, root: Path, runtime: Path, *options: str) -> None:
        self.root = root
        environ = {key: value for key, value in os.environ.items() if not key.startswith("FSRUN_")}
        environ |= {"XDG_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": "1"}
        self._log = runtime / "up.log"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fsrun", "up", str(root), "--port", "0", *options],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log.open("wb"),
            text=True,
        )
        assert self.process.stdout is not None
        self.address = ""
        for line in self.process.stdout:
            if "http://" in line:
                self.address = line.split()[-1]
                break
        assert self.address, f"fsrun up ended with {self.process.wait(PATIENCE)}: {self._log.read_text()}"

    def stop(self) -> None:
        """End it, and its daemon with it."""
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()


class Page:
    """A page of the browser, as ``page``; what it asked for and complained of."""

    def __init__(self, context: Any, viewer: Viewer) -> None:
        self.context, self.viewer = context, viewer
        context.set_default_timeout(1000 * PATIENCE)
        self.page = context.new_page()
        self.requests: list[str] = []
        self.dialogs: list[str] = []
        self.errors: list[str] = []
        self.expected: tuple[str, ...] = ()
        context.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", self._dialog)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))

    def _dialog(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def goto(self, hash: str) -> None:
        """Go to an address of the page, ``#/...``, and load it anew."""
        self.page.goto("about:blank")
        self.page.goto(self.viewer.address.split("#")[0] + hash)

    def until(self, condition: str, argument: Any = None) -> None:
        """Wait until an arrow function in JavaScript says yes; a bare expression would need ``eval``, which the page
        forbids."""
        self.page.wait_for_function(condition, arg=argument)

    def texts(self, selector: str) -> list[str]:
        """What each element shows."""
        return [text.strip() for text in self.page.locator(selector).all_inner_texts()]

    def sees(self, selector: str, text: str | None = None) -> Any:
        """Wait for an element, with a text in it if given; the first of them."""
        found = self.page.locator(selector)
        found = (found.filter(has_text=text) if text is not None else found).first
        found.wait_for()
        return found

    def overflow(self) -> int:
        """How many pixels the page is wider than its window."""
        return int(self.page.evaluate("() => document.documentElement.scrollWidth - innerWidth"))

    def picture(self, name: str) -> None:
        """Keep what is seen."""
        folder = Path(os.environ.get("FSRUN_SCREENSHOTS") or CHECKOUT / "build" / "screenshots")
        folder.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=folder / f"{name}.png")

    def complaints(self) -> list[str]:
        """What should not have happened."""
        host = urlsplit(self.viewer.address).netloc
        elsewhere = [
            url for url in self.requests if url.startswith(("http", "ws", "ftp")) and urlsplit(url).netloc != host
        ]
        errors = [error for error in self.errors if not any(part in error for part in self.expected)]
        return [*(f"dialog: {text}" for text in self.dialogs), *(f"asked {url}" for url in elsewhere), *errors]


def watched(context: Any, viewer: Viewer) -> Page:
    """A page in a context of its own."""
    return Page(context, viewer)
