"""A fleet: SGLang engines behind their own router, which load snapshot after snapshot and are evaluated.

``settings``: what it is made of. ``evaluator``: one entry, from its folder to its scores. The rest serves these two:
``states`` and ``stalls`` decide without any I/O, ``supervision`` does what is due, with ``launch`` and ``loading`` for
single steps, ``processes`` and ``keeper`` start and end engines and router, ``trees`` finds all that they started,
``keys`` has what engines ask for. docs/fleet.md describes the whole.
"""

from fsrun.adapters.fleet.settings import FleetSettings

__all__ = ["FleetSettings"]
