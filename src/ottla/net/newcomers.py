"""Limits what new clients cost those that are connected: `Newcomers`.

Hostile clients connect hundreds of times a second, many at once, and each costs an accept, a handshake, a login or a
few requests. So the work for a new client gets a share of the loop's time. A piece of it is done at once while the
share lasts, and waits in line afterwards. Clients that have sent some requests (`connection.READS`) are served between
the pieces. If the loop has nothing else to do, the line moves on without a pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.clock import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("ottla.net")

SHARE: Final = 0.25  # of the time that others took
SAVED_S_MAX: Final = 0.0005  # the most that is saved up while no client is new
ROUND_S: Final = 0.0003  # the least time slice of the line, once per iteration of the loop


class Newcomers:
    __slots__ = ("_line", "_saved_s", "_until")

    def __init__(self) -> None:
        self._line: deque[Callable[[], None]] = deque()
        self._saved_s = SAVED_S_MAX
        self._until = 0.0  # the end of the last piece of work

    def __len__(self) -> int:
        return len(self._line)

    def serve(self, work: Callable[[], None]) -> bool:
        """Do the work at once. False if it has to wait: then it is done in one of the next iterations of the loop."""
        if not self._line:
            began = monotonic()
            saved_s = min(SAVED_S_MAX, self._saved_s + SHARE * (began - self._until))
            if saved_s > 0:
                work()
                self._until = monotonic()
                self._saved_s = saved_s - (self._until - began)
                return True
            asyncio.get_running_loop().call_soon(self._round)
        self._line.append(work)
        return False

    def _round(self) -> None:
        line, began = self._line, monotonic()
        end = began + max(ROUND_S, SHARE * (began - self._until))  # a busy broker lets new clients in, too
        while line:
            work = line.popleft()
            try:
                work()
            except Exception:  # a failure of one connection does not stop the others
                log.exception("work for a new client failed")
            if monotonic() >= end:
                break
        self._saved_s, self._until = 0.0, monotonic()
        if line:
            asyncio.get_running_loop().call_soon(self._round)
