"""Gates: the ACL checks of each API, done before the handler gets the request.

`gate.py` defines what a gate is and puts it in front of a handler; the other files have the gates, by API family. They
are loaded only by a broker with an authorizer.
"""

from importlib import import_module
from pkgutil import iter_modules


def load() -> None:
    """Import every family, which registers its gates."""
    for module in iter_modules(__path__):
        import_module(f"ottla.handlers.gates.{module.name}")
