"""Notifies the controller of changes to this broker's logs: a directory has failed, so that other brokers become
leaders; a log could be opened after all; there is room again for logs that were refused.

The controller then sends LeaderAndIsr again, and learns from the responses which partitions are offline
(`assigned.py`).
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
    """Report each change, retrying until it works. Runs until cancelled."""
    steps = Steps("ottla.replicas")
    told = {directory.path for directory in store.directories if not directory.online}
    broken = set(store.broken)
    refusals = 0  # already reported to the controller
    while True:
        await asyncio.sleep(LOOK_S)
        with steps.attempt("reporting offline logs to the controller"):
            offline = {directory.path for directory in store.directories if not directory.online}
            has_room = replicas.refusals > refusals and replicas.has_room()
            if offline - told or not broken <= store.broken.keys() or has_room:
                still, refused = set(store.broken), replicas.refusals
                await tell()
                told |= offline
                broken, refusals = still, refused
