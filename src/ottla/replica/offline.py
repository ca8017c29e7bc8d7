"""A log directory that fails while the broker runs: the controller is told, and elects others for what was led there.

It asks this broker for its roles again, and hears from the answers which partitions are offline (`assigned.py`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.log.store import LogStore

LOOK_S = 1.0


async def watch_directories(store: LogStore, tell: Callable[[], Awaitable[object]]) -> None:
    """Tell of each directory that goes offline from now on, and of logs that could be opened after all, again and again
    until it works; until cancelled. Both have the controller ask which replicas are fine."""
    steps = Steps("ottla.replicas")
    told = {directory.path for directory in store.directories if not directory.online}
    broken = set(store.broken)
    while True:
        await asyncio.sleep(LOOK_S)
        with steps.attempt("telling the controller of a directory that is offline"):
            offline = {directory.path for directory in store.directories if not directory.online}
            if offline - told or not broken <= store.broken.keys():
                still = set(store.broken)
                await tell()
                told |= offline
                broken = still
