"""The APIs that a broker serves: a file per family, a function per API. `load` registers them all.

The docstring of each file says what each version added; `wire/messages` has the fields. The parts of the running broker
that a handler needs are in `Parts` (`call.py`). Decisions about groups and transactions are made in `coord/`, not here.
"""

from importlib import import_module
from pkgutil import iter_modules

NOT_FAMILIES = ("acknowledging", "call", "clearance", "finishing", "gates", "hints", "reading", "repeats", "shortcut")


def load() -> None:
    """Import every family, which puts its handlers into the registry."""
    for module in iter_modules(__path__):
        if module.name not in NOT_FAMILIES:
            import_module(f"ottla.handlers.{module.name}")
