"""Gates: what a client needs to be allowed for each API, checked before the handler sees the request.

`gate.py` says what a gate is and puts it in front of a handler; the other files have the gates, family by family. They
are loaded by a broker that has an authorizer, and by no other.
"""

from importlib import import_module
from pkgutil import iter_modules


def load() -> None:
    """Import every family, which registers its gates."""
    for module in iter_modules(__path__):
        import_module(f"ottla.handlers.gates.{module.name}")
