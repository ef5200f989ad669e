"""Stands in for pyarrow in programs that are to start fast; ending a run does without it, with a warning."""

raise ImportError("this program does without pyarrow")
