"""What the controller has to hear of the logs of a broker that runs: that a directory has failed, so that others lead
what was led there; that a log could be opened after all; that there is room again for logs that had to be refused.

It asks this broker for its roles again, and hears from the answers which partitions are offline (`assigned.py`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.log.store import LogStore
    from ottla.replica.assigned import Assigned

LOOK_S = 1.0


async def watch_directories(store: LogStore, replicas: Assigned, tell: Callable[[], Awaitable[object]]) -> None:
    """Tell of each change, again and again until it works; until cancelled."""
    steps = Steps("ottla.replicas")
    told = {directory.path for directory in store.directories if not directory.online}
    broken = set(store.broken)
    refusals = 0  # of which the controller need not hear any more
    while True:
        await asyncio.sleep(LOOK_S)
        with steps.attempt("telling the controller of logs that are offline, or no longer"):
            offline = {directory.path for directory in store.directories if not directory.online}
            has_room = replicas.refusals > refusals and replicas.has_room()
            if offline - told or not broken <= store.broken.keys() or has_room:
                still, refused = set(store.broken), replicas.refusals
                await tell()
                told |= offline
                broken, refusals = still, refused
