"""Callbacks and loggers for training frameworks; each module needs its framework and is imported by its users alone.

``from fsrun.integrations.transformers import FsrunCallback``; ``from fsrun.integrations.lightning import FsrunLogger,
FsrunCallback``. What they do is done by the library; they only know when. docs/evaluate.md shows them at work.
"""
