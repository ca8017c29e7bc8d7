"""Start after an unclean stop: the broker registers only when it is no longer in any in-sync set with others.

A power cut loses records that were not forced to disk, among them records that this broker has acknowledged as an
in-sync replica. If it came back before its absence was noticed, it could become leader with a shorter log, and
committed records would be lost. The controller removes an absent broker from every in-sync set that has another member;
the broker waits for that. This takes at most the timeout of the former session: the former registration, and the
controller node if this broker held it, are removed at once if the former session id is known.

A partition whose other in-sync replicas are absent too is not waited for: nobody else could be its leader.
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
    """Return when no in-sync set relies on this broker. `session` is its former session id, 0 if unknown."""
    until, wait_s = clock.monotonic() + patience_s, LOOK_S
    said = False
    while True:
        try:
            for path in (znodes.broker_path(node_id), znodes.CONTROLLER):
                await _remove(store, path, session)
            count = await counting_on(store, node_id)
        except StoreError:
            count = -1  # the store does not answer
        if count == 0:
            return
        if clock.monotonic() >= until:
            logger.error("registering although this broker is still in %d in-sync sets", count)
            return
        if not said:
            logger.info("waiting to be removed from in-sync sets", extra={"partitions": count})
            said = True
        await asyncio.sleep(wait_s)
        wait_s = min(LOOK_S_MAX, 2 * wait_s)


async def counting_on(store: MetadataStore, node_id: int) -> int:
    """How many partitions have both this broker and a registered one in their in-sync set."""
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
