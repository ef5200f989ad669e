"""A fleet: SGLang engines behind their own router, which load snapshot after snapshot and are evaluated.

``settings``: what it is made of. ``evaluator``: one entry, from its folder to its scores. The rest serves these two:
``states`` and ``actions`` decide without any I/O, ``members`` and ``loading`` talk to engines, ``processes`` and
``keeper`` start and end them. docs/fleet.md describes the whole.
"""

from fsrun.adapters.fleet.settings import FleetSettings

__all__ = ["FleetSettings"]
