"""Producers that a worker process keeps from one task to the next: connections and, for at-least-once writes, a
producer id with its sequence numbers.

Brokers remember a producer id for a day, so a new one for each task of each small batch would add up. Spark's Python
workers run one task after another and end after a minute of idleness, so the number of kept producers is bounded by the
number of workers. A producer whose task failed is discarded, because the outcome of its last batches is unknown.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.client.transaction import identify

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from ottla.client.cluster import Cluster
    from ottla.client.transaction import ProducerIdentity
    from ottla.spark.sink.options import SinkOptions

KEPT_MAX: Final = 4  # clusters, or option sets for one, that a worker keeps
IDLE_S: Final = 300.0  # brokers close connections that are idle for ten minutes

_kept: dict[Hashable, Producer] = {}  # least recently used first


@dataclass
class Producer:
    cluster: Cluster
    identity: ProducerIdentity | None = None
    sequences: dict[str, dict[int, int]] = field(default_factory=dict)  # by topic and partition: the next one
    returned: float = 0.0

    def identify(self, options: SinkOptions) -> ProducerIdentity | None:
        """The producer id for at-least-once writes, if idempotence is on."""
        if self.identity is None and options.idempotent:
            self.identity = identify(self.cluster, None, timeout_ms=options.transaction_timeout_ms)
        return self.identity


@contextmanager
def producer(options: SinkOptions) -> Iterator[Producer]:
    """A producer for these options, new or kept. It is kept again if nothing is raised."""
    key = (options.bootstrap, options.security, options.client_id, options.request_timeout_ms,
           options.delivery_timeout_ms, options.idempotent)  # fmt: skip
    found = _kept.pop(key, None)
    if found is not None and time.monotonic() - found.returned > IDLE_S:
        found.cluster.close()
        found = None
    if found is None:
        found = Producer(options.cluster(patience_ms=options.delivery_timeout_ms))
    try:
        yield found
    except BaseException:
        found.cluster.close()
        raise
    found.returned = time.monotonic()
    _kept[key] = found
    while len(_kept) > KEPT_MAX:
        _kept.pop(next(iter(_kept))).cluster.close()


def close() -> None:
    """Close all of them."""
    while _kept:
        _kept.popitem()[1].cluster.close()
