"""A start after a stop that may have lost records: the broker registers only when no in-sync set counts on it.

A power cut takes what was not forced to disk, and with it records that this broker has acknowledged as an in-sync
replica. If it came back before its absence was noticed, it could lead with a shorter log, and what was committed would
be gone. The controller takes a broker that is away out of every in-sync set in which somebody else is; the broker waits
for that. It takes a moment, and no longer than the former session's time-out: the registration of the former life, and
its office as controller, are removed if they can be told from those of others.

A partition whose other in-sync replicas are away too is not waited for: there is nobody else to lead it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.cluster import znodes
from ottla.cluster.metadata_store import BadVersion, NoNode, StoreError

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.cluster.metadata_store import MetadataStore

logger = logging.getLogger("ottla.member")

LOOK_S, LOOK_S_MAX = 0.05, 1.0


async def be_given_up(store: MetadataStore, node_id: int, session: int, clock: Clock, *, patience_s: float) -> None:
    """Return when no in-sync set counts on this broker. `session` is that of its former life, 0 if unknown."""
    until, wait_s = clock.monotonic() + patience_s, LOOK_S
    said = False
    while True:
        try:
            for path in (znodes.broker_path(node_id), znodes.CONTROLLER):
                await _remove(store, path, session)
            count = await counting_on(store, node_id)
        except StoreError:
            count = -1  # the store does not answer either
        if count == 0:
            return
        if clock.monotonic() >= until:
            logger.error("this broker comes back although %d in-sync sets still count on what it had", count)
            return
        if not said:
            logger.info("waiting until nobody counts on what this broker had", extra={"partitions": count})
            said = True
        await asyncio.sleep(wait_s)
        wait_s = min(LOOK_S_MAX, 2 * wait_s)


async def counting_on(store: MetadataStore, node_id: int) -> int:
    """How many partitions have this broker in sync, and another one that is there."""
    nodes = {**await store.tree(znodes.TOPICS), **await store.tree(znodes.BROKERS)}
    image = znodes.image_of(nodes, malformed=set())
    others = image.brokers.keys() - {node_id}
    return sum(
        node_id in state.isr and not others.isdisjoint(state.isr)
        for topic in image.topics.values()
        for state in topic.partitions
    )


async def _remove(store: MetadataStore, path: str, session: int) -> None:
    try:
        node = await store.get(path)
        if session and node.stat.owner == session:
            await store.delete(path, node.stat.version)
    except (NoNode, BadVersion):
        return
