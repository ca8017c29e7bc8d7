"""Ottla: Kafka in Python.

    async with ottla.Broker() as broker: ...        a real broker on the running event loop
    with ottla.BrokerThread() as broker: ...        the same in its own thread, for scripts and tests
    with ottla.BrokerProcess() as broker: ...       the same in its own process

`broker.bootstrap` is the address for Kafka clients. `import ottla` loads nothing until one of these names is used.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Broker", "BrokerFailed", "BrokerProcess", "BrokerThread", "__version__"]

if TYPE_CHECKING:
    from ottla.embed import Broker, BrokerFailed, BrokerProcess, BrokerThread
else:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from ottla import embed

        return getattr(embed, name)
