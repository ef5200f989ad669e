"""A training run is a folder: scalars, heartbeats and the hand-over of checkpoints as plain files.

    import fsrun

    with fsrun.init("speech", run_id="big", config=cfg) as run:
        run.add_scalar({"train/loss": loss}, step=step)
        run.enqueue("ckpt/step_100.pt", step=100)

Everything else is loaded when it is first asked for, so that importing this costs next to nothing.
"""

# The build reads the version from this line.
__version__ = "0.1.0"

# Type checkers take this name for typing's own, whose import would double the cost of this one.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from fsrun.adapters.flags import add_eval_args
    from fsrun.adapters.holding import PausedEvaluation
    from fsrun.adapters.snapshot import snapshot
    from fsrun.core.errors import FsrunError, HeldError, InvalidError, NotFoundError, UsageError
    from fsrun.core.schedule import is_due
    from fsrun.run.entries import Entry, Skip
    from fsrun.run.reader import RunReader, open
    from fsrun.run.run import Run, init

__all__ = [
    "Entry",
    "FsrunError",
    "HeldError",
    "InvalidError",
    "NotFoundError",
    "PausedEvaluation",
    "Run",
    "RunReader",
    "Skip",
    "UsageError",
    "__version__",
    "add_eval_args",
    "init",
    "is_due",
    "open",
    "snapshot",
]

_HOMES = {
    "Entry": "fsrun.run.entries",
    "FsrunError": "fsrun.core.errors",
    "HeldError": "fsrun.core.errors",
    "InvalidError": "fsrun.core.errors",
    "NotFoundError": "fsrun.core.errors",
    "PausedEvaluation": "fsrun.adapters.holding",
    "Run": "fsrun.run.run",
    "RunReader": "fsrun.run.reader",
    "Skip": "fsrun.run.entries",
    "UsageError": "fsrun.core.errors",
    "add_eval_args": "fsrun.adapters.flags",
    "init": "fsrun.run.run",
    "is_due": "fsrun.core.schedule",
    "open": "fsrun.run.reader",
    "snapshot": "fsrun.adapters.snapshot",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
