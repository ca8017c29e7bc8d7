"""The APIs a broker serves: a file per family, a function per API. `load` registers them all.

Which version does what is said at the top of each family's file; which versions exist, in `wire/messages`.
"""

from importlib import import_module
from pkgutil import iter_modules

NOT_FAMILIES = ("acknowledging", "call", "gates", "hints", "reading", "repeats")


def load() -> None:
    """Import every family, which puts its handlers into the registry."""
    for module in iter_modules(__path__):
        if module.name not in NOT_FAMILIES:
            import_module(f"ottla.handlers.{module.name}")
