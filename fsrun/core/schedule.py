"""When an evaluation is due: a rule of the number of updates alone, so that a resumed training follows the same one.

A step is the number of updates that are done: step 0 is the untrained model, step ``total`` the trained one. Asked
after each update (and once before the first), every due step is due once, also after a resume: the loop goes on
behind the step that it resumed at, which was due in the session that reached it.

    if start == 0 and is_due(0, interval, first=args.eval_first):
        evaluate(0)
    for step in range(start + 1, total + 1):
        update()
        if is_due(step, interval, last=args.eval_last, total=total):
            evaluate(step)

Traps that this form avoids: a loop that counts from 0 and evaluates before its update gives the untrained model and the
first update the same step; one that asks ``step % interval`` of the index is one update late; the last step is missed
where the interval does not divide the total; a loop that advances by more than one jumps over multiples (``before``
tells it); what is handed over is the exact step, never "the latest", which may be of another one (``unsaved`` names the
due steps at which nothing is saved).
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from fsrun.core.errors import UsageError


def is_due(
    step: int,
    interval: int | None,
    *,
    first: bool = True,
    last: bool = True,
    total: int | None = None,
    before: int | None = None,
    done: Container[int] = (),
) -> bool:
    """Whether the model after ``step`` updates is to be evaluated.

    ``interval``: every so many updates; None: never. ``first``: whether step 0 is; ``last``: whether step ``total`` is
    even where the interval does not fall on it. ``before``: the step at which this was asked last, where steps advance
    by more than one: a multiple in between counts. ``done``: steps that have their evaluation, such as the one that a
    training resumes at.

    Raises ``UsageError`` for an interval below 1 or a negative step.
    """
    if interval is None:
        return False
    if interval < 1:
        raise UsageError(f"eval interval {interval}: at least 1, or none where nothing is evaluated")
    if step < 0:
        raise UsageError(f"step {step}: a step is the number of updates that are done, 0 or more")
    if step in done:
        return False
    if step == 0:
        return first
    if total is not None and step == total and last:
        return True
    previous = step - 1 if before is None else before
    return step // interval > previous // interval


def due_steps(interval: int | None, total: int, *, first: bool = True, last: bool = True) -> Iterator[int]:
    """All steps of a training of ``total`` updates that are due, in order."""
    return (step for step in range(total + 1) if is_due(step, interval, first=first, last=last, total=total))


def unsaved(interval: int, every: int, total: int, *, last: bool = True) -> list[int]:
    """The due steps at which a training that saves each ``every`` updates, and at its end, has saved nothing.

    Evaluating those from its checkpoints is impossible; the interval has to be a multiple of ``every``.
    """
    if every < 1:
        raise UsageError(f"save interval {every}: at least 1")
    return [step for step in due_steps(interval, total, first=False, last=last) if step % every and step != total]
