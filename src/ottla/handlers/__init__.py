"""The APIs a broker serves: a file per family, a function per API. `load` registers them all.

Which version does what is said at the top of each family's file; which versions exist, in `wire/messages`.
"""

from importlib import import_module

FAMILIES = (
    "cluster",
    "configs",
    "coordinators",
    "fetch",
    "logdirs",
    "metadata",
    "offsets",
    "produce",
    "producers",
    "security_off",
    "topics",
    "versions",
)


def load() -> None:
    """Import every family, which puts its handlers into the registry."""
    for family in FAMILIES:
        import_module(f"ottla.handlers.{family}")
