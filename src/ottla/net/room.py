"""Memory for partially received requests of all connections together: `queued.max.request.bytes`.

A frame reserves its whole size with its first piece, and releases it after it is handled. When nothing is left,
connections that begin another frame are not read any further. As in Kafka, the last reservation may exceed the limit by
one request. So every frame that has begun can finish, whatever other clients do.
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
        self._line: dict[Callable[[], None], None] = {}  # in the order of arrival

    def take(self, size: int) -> bool:
        """Reserve memory; False if there is none left."""
        if self.taken >= self._size_max:
            return False
        self.taken += size
        return True

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` when there may be room again."""
        self._line[go_on] = None

    def leave(self, go_on: Callable[[], None]) -> None:
        """Stop waiting."""
        self._line.pop(go_on, None)

    def give(self, size: int) -> None:
        self.taken -= size
        for go_on in list(self._line):
            if self.taken >= self._size_max:
                return
            if go_on in self._line:
                del self._line[go_on]
                go_on()
