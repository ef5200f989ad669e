"""Descriptors 1 and 2 of this process, led through channels of ours and back.

Does: makes a channel (a pipe, or a pseudo-terminal where the original is a terminal) for standard output and error, one
for both where they are the same file; puts the originals back where the channel still stands. A descriptor of ours that
somebody closed, so that its number may be another file's by now, is never used again. Leaves to others: who reads the
channels (``relay``), when (``console``).
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
import struct
import termios
from collections.abc import Sequence
from contextlib import suppress

PIPE_SIZE = 1 << 20
"""Bytes that a pipe holds, where the system allows it: what a program prints in one go does not wait for us."""
_SMALL_PIPE = 1 << 16
_ABOVE = 10
"""Our descriptors have higher numbers: low ones are expected to be free or standard."""

_Identity = tuple[int, int, int]


def identify(descriptor: int) -> _Identity | None:
    """What an open descriptor leads to, None where it is closed."""
    try:
        facts = os.fstat(descriptor)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino, facts.st_rdev


class Held:
    """A descriptor of ours, closed in programs that this process starts."""

    __slots__ = ("identity", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.identity = identify(number)

    @classmethod
    def copy(cls, descriptor: int) -> Held:
        """Hold a copy of a descriptor."""
        return cls(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE))

    @classmethod
    def take(cls, descriptor: int) -> Held:
        """Hold a descriptor in place of its number so far, which is closed."""
        try:
            return cls.copy(descriptor)
        finally:
            os.close(descriptor)

    @property
    def is_ours(self) -> bool:
        """Whether the number still leads to what it led to."""
        return self.number >= 0 and identify(self.number) == self.identity

    def close(self) -> None:
        """Close it, if it is still ours."""
        if self.is_ours:
            with suppress(OSError):
                os.close(self.number)
        self.number = -1


class Channel:
    """What ``descriptors`` of this process are led through, read at ``reader``; ``original`` is where it all goes.

    Without descriptors it is a pipe that ``writer`` writes to, and goes nowhere but into the log.
    """

    def __init__(self, descriptors: Sequence[int]) -> None:
        self.descriptors = tuple(descriptors)
        self.originals = [(d, Held.copy(d)) for d in descriptors]
        self.original = self.originals[0][1] if descriptors else None
        self.is_terminal = self.original is not None and os.isatty(self.original.number)
        try:
            reader, writer = _open_terminal(descriptors[0]) if self.is_terminal else _open_pipe()
        except OSError:
            self._close_originals()
            raise
        self.reader = Held.take(reader)
        self.writer: Held | None = Held.take(writer)
        self.identity = self.writer.identity

    def switch(self) -> None:
        """Lead the descriptors through the channel from now on."""
        assert self.writer is not None
        for descriptor in self.descriptors:
            os.dup2(self.writer.number, descriptor)
        if self.descriptors:
            self.writer.close()
            self.writer = None

    def restore(self) -> None:
        """Put the originals back where the channel still stands. Never raises, never waits; once is enough."""
        for descriptor, original in self.originals:
            if identify(descriptor) == self.identity and original.is_ours:
                with suppress(OSError):
                    os.dup2(original.number, descriptor)

    def has_room(self) -> bool:
        """Whether a write of some kilobytes to the channel does not wait.

        The pages of a pipe are half full at least, so that a quarter of its size takes half of it at most.
        """
        if not self.descriptors or identify(self.descriptors[0]) != self.identity:
            return True
        held = waiting(self.reader.number)
        if self.is_terminal:
            poller = select.poll()
            poller.register(self.descriptors[0], select.POLLOUT)
            return not held and bool(poller.poll(0))
        size = fcntl.fcntl(self.reader.number, getattr(fcntl, "F_GETPIPE_SZ", 1032))
        return size >= _SMALL_PIPE and 4 * held <= size

    def close(self) -> None:
        """Close everything of ours."""
        self.reader.close()
        if self.writer is not None:
            self.writer.close()
        self._close_originals()

    def _close_originals(self) -> None:
        for _, original in self.originals:
            original.close()


def open_channels() -> list[Channel]:
    """Channels for standard output and error, as far as they are open for writing. Raises ``OSError``."""
    groups = [[d] for d in (1, 2) if _is_written(d)]
    if len(groups) == 2 and identify(1) == identify(2):
        # One channel keeps the order of the two. What goes to one file goes by one of its descriptors.
        groups = [[1, 2]]
    channels: list[Channel] = []
    try:
        for group in groups:
            channels.append(Channel(group))
    except OSError:
        for channel in channels:
            channel.close()
        raise
    return channels


def follow(pid: int) -> None:
    """Lead standard output and error where those of process ``pid`` lead now, if that is a pipe or a terminal.

    For a process that was started before its parent began to record. Nothing changes where that cannot be found out.
    """
    for descriptor in (1, 2):
        path = f"/proc/{pid}/fd/{descriptor}"
        with suppress(OSError):
            facts = os.stat(path)
            is_stream = stat.S_ISFIFO(facts.st_mode) or stat.S_ISCHR(facts.st_mode)
            if is_stream and (facts.st_dev, facts.st_ino, facts.st_rdev) != identify(descriptor):
                opened = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
                os.set_blocking(opened, True)
                os.dup2(opened, descriptor)
                os.close(opened)


def _is_written(descriptor: int) -> bool:
    try:
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    except OSError:
        return False
    return flags & os.O_ACCMODE != os.O_RDONLY and not flags & getattr(os, "O_PATH", 0)


def _open_pipe() -> tuple[int, int]:
    reader, writer = os.pipe()
    set_size = getattr(fcntl, "F_SETPIPE_SZ", None)
    if set_size is not None:
        with suppress(OSError):  # over the user's limit of pipe memory
            fcntl.fcntl(writer, set_size, PIPE_SIZE)
    return reader, writer


def _open_terminal(original: int) -> tuple[int, int]:
    """A terminal that changes no byte, of the size of ``original``."""
    reader, writer = os.openpty()
    try:
        settings = termios.tcgetattr(original)
        settings[1] &= ~termios.OPOST
        settings[3] &= ~(termios.ECHO | termios.ECHONL)
        termios.tcsetattr(writer, termios.TCSANOW, settings)
        copy_size(original, writer)
    except (OSError, termios.error) as error:
        os.close(reader)
        os.close(writer)
        raise OSError(errno.ENOTTY, "the terminal's settings cannot be read") from error
    return reader, writer


def waiting(reader: int) -> int:
    """Bytes that can be read now."""
    try:
        return int(struct.unpack("i", fcntl.ioctl(reader, termios.FIONREAD, b"\0" * 4))[0])
    except OSError:
        return 0


def copy_size(source: int, target: int) -> None:
    """Give a terminal the window size of another one."""
    with suppress(OSError):
        size = fcntl.ioctl(source, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)
