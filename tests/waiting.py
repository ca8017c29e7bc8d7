"""Waiting in tests: until something is true, with a limit far above what even a slow and busy machine needs.

A test fails because something never happens, not because it happens late. So there is one generous limit for all.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Found = TypeVar("Found")

WAIT_S: Final = 120.0
PAUSE_S: Final = 0.02
TURNS: Final = 1000  # turns of the loop without a pause, before it sleeps
TURN_S: Final = 0.001


def wait_until(ready: Callable[[], Found], what: object = "it did not come true", seconds: float = WAIT_S) -> Found:
    """Poll until `ready` returns something true, and return that. `what` is the failure message, or a callable."""
    deadline = time.monotonic() + seconds
    while not (found := ready()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(PAUSE_S)
    return found


async def until(ready: Callable[[], Found], what: object = "it did not come true", seconds: float = WAIT_S) -> Found:
    """`wait_until` on an event loop: polls at every turn, at first without a pause, so that short states are seen."""
    deadline, turn = time.monotonic() + seconds, 0
    while not (found := ready()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        turn += 1
        await asyncio.sleep(0 if turn < TURNS else TURN_S)
    return found
