"""Memory for requests that arrive in pieces, of all connections together: `queued.max.request.bytes`.

A frame takes its whole size when its first piece is here, and gives it back when it was handled. While there is nothing
left, whoever begins with another frame is not read any further; as with Kafka, the last to get some may go beyond the
limit by one request. So those who have begun can finish, whatever others do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Room:
    __slots__ = ("_line", "_size_max", "taken")

    def __init__(self, size_max: int) -> None:
        self.taken = 0
        self._size_max = size_max
        self._line: dict[Callable[[], None], None] = {}  # in the order in which they came

    def take(self, size: int) -> bool:
        """Whether there is room: it is taken then."""
        if self.taken >= self._size_max:
            return False
        self.taken += size
        return True

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call this when there may be room again."""
        self._line[go_on] = None

    def leave(self, go_on: Callable[[], None]) -> None:
        """Somebody waits no more."""
        self._line.pop(go_on, None)

    def give(self, size: int) -> None:
        self.taken -= size
        for go_on in list(self._line):
            if self.taken >= self._size_max:
                return
            if go_on in self._line:
                del self._line[go_on]
                go_on()
