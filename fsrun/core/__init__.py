"""Decisions of the protocol: no I/O, no clock, no randomness, no thread."""
