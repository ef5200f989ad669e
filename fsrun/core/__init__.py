"""Decisions of the protocol: no I/O, no clock, no randomness, no thread. Everything here takes values and returns values."""
