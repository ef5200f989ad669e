"""The demo's progress: two bars on a terminal, lines elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from fsrun.cli.demo.plan import Steps
from fsrun.cli.demo.watch import Seen
from fsrun.cli.text import number

if TYPE_CHECKING:
    from rich.console import Console

_NOTE_WIDTH = 96
"""A terminal narrower than this has no room for words beside the bars."""


class Progress(Protocol):
    """Shows how far both processes are."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def update(self, seen: Seen) -> None:
        """Show what was seen."""
        ...

    def say(self, text: str) -> None:
        """Print a line of its own."""
        ...


def make(console: Console, plan: Steps) -> Progress:
    """Return bars for a terminal that can draw them, else lines."""
    if console.is_terminal and not console.is_dumb_terminal:
        return Bars(console, plan)
    return Lines(console, plan)


class Lines:
    """One line for each checkpoint that was evaluated."""

    def __init__(self, console: Console, plan: Steps) -> None:
        self._console = console
        self._plan = plan
        self._shown = 0
        self._trained = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def update(self, seen: Seen) -> None:
        """Print what is new."""
        for outcome in seen.done[self._shown :]:
            self._shown += 1
            count = f"{self._shown} of {len(self._plan.checkpoint_steps)}"
            score = _score(outcome, self._plan.best)
            self.say(f"evaluated {outcome['entry']} ({count}): {score}; training is at step {seen.step}")
        if seen.step >= self._plan.steps and not self._trained:
            self._trained = True
            self.say(f"training is done: {self._plan.steps} steps")

    def say(self, text: str) -> None:
        """Print a line at once, also into a pipe."""
        self._console.print(text)
        self._console.file.flush()


class Bars:
    """A bar for training steps and one for evaluated checkpoints."""

    def __init__(self, console: Console, plan: Steps) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress

        columns = [TextColumn("{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn()]
        if console.width >= _NOTE_WIDTH:
            columns.append(TextColumn("{task.fields[note]}"))
        self._progress = RichProgress(*columns, console=console, expand=True)
        self._best = plan.best
        self._training = self._progress.add_task("training steps", total=plan.steps, note="")
        self._evaluation = self._progress.add_task(
            "evaluated checkpoints", total=len(plan.checkpoint_steps), note="waiting for the first one"
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, seen: Seen) -> None:
        """Move the bars."""
        self._progress.update(self._training, completed=seen.step)
        if seen.done:
            newest = seen.done[-1]
            note = f"{_score(newest, self._best)} at step {newest['step']}"
            self._progress.update(self._evaluation, completed=len(seen.done), note=note)

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self._progress.console.print(text)


def _score(outcome: dict[str, Any], best: str) -> str:
    return f"{best} {number(outcome['scores'].get(best))}"
