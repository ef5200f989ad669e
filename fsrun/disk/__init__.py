"""The file system, the clock and the identity of a process, each behind a seam that tests replace."""
