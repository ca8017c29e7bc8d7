"""The current leader of a partition, for a client that asked the wrong broker (KIP-951).

It saves the client a Metadata request: the answer contains the leader as this broker knows it, and its address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.handlers.call import Call, Parts


class Hint(NamedTuple):
    leader: int
    epoch: int
    host: str
    port: int
    rack: str | None


def leader_hint(parts: Parts, call: Call, topic: str, index: int) -> Hint | None:
    """None if there is no leader, it is this broker, or it has no address on the client's listener."""
    image = parts.metadata.image
    found = image.topics.get(topic)
    if found is None or not 0 <= index < len(found.partitions):
        return None
    state = found.partitions[index]
    broker = image.brokers.get(state.leader)
    address = None if broker is None else broker.endpoints.get(call.listener)
    if broker is None or address is None or broker.id == parts.node_id:
        return None
    return Hint(broker.id, state.leader_epoch, *address, broker.rack)
