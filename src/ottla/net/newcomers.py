"""Limits what new clients cost those that are connected: `Newcomers`.

Hostile clients connect hundreds of times a second, many at once, and each costs an accept, a handshake, a login or a
few requests. So the work for a new client gets a share of the loop's time. A piece of it is done at once while the
share lasts, and waits in line afterwards. Clients that are no longer new (`connection.READS_WHILE_NEW`) are served
between the pieces. If the loop has nothing else to do, the line moves on without a pause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.clock import monotonic
from ottla.net.turns import ROUND_S, Turns

if TYPE_CHECKING:
    from collections.abc import Callable

SHARE: Final = 0.25  # of the time that others took
SAVED_S_MAX: Final = 0.0002  # the most that is saved up while no client is new
ROUND_S_MIN: Final = 0.00015  # the least time slice of the line


class Newcomers(Turns):
    """Work for new clients, of which some waits in line."""

    __slots__ = ("_saved_s", "_until")

    def __init__(self) -> None:
        super().__init__()
        self._saved_s = SAVED_S_MAX
        self._until = 0.0  # the end of the last piece of work

    def serve(self, work: Callable[[], None]) -> bool:
        """Do the work at once. False if it has to wait: then it is done in one of the next iterations of the loop."""
        began = monotonic()
        saved_s = min(SAVED_S_MAX, self._saved_s + SHARE * (began - self._until))
        if self._running or saved_s <= 0:
            self.add(work)
            return False
        work()
        self._until = monotonic()
        self._saved_s = saved_s - (self._until - began)
        return True

    def round_s(self) -> float:
        """It grows with the time that others took, so that a busy broker lets new clients in, too."""
        return min(ROUND_S, max(ROUND_S_MIN, SHARE * (monotonic() - self._until)))

    def _round(self) -> None:
        super()._round()
        self._saved_s, self._until = 0.0, monotonic()
