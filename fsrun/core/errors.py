"""The errors that callers may catch. Each message names the path, the holder where there is one, and the remedy."""

from __future__ import annotations


class FsrunError(Exception):
    """Base of every error that fsrun raises on purpose."""

    details: str = ""
    """Text of several lines that belongs to it, such as the traceback of a user's code."""


class HeldError(FsrunError):
    """Another live process holds the job (it names host and process), or a newer session fenced this one."""


class NotFoundError(FsrunError):
    """No such run, job or entry; the message names the place that was searched."""


class UsageError(FsrunError):
    """The arguments cannot work; nothing was written."""


class InvalidError(FsrunError):
    """A file of the run breaks the protocol, or asks for a version that this program does not know."""
