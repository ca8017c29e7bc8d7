"""What a request asks for more than once.

Apache Kafka answers each time. So do we, a few times: no client needs it, and a few bytes could otherwise ask for a
large thing, such as a group with all its members, sixty thousand times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Hashable

REPEATS_MAX = 16


class Repeats:
    """What was asked for in one request."""

    def __init__(self) -> None:
        self._seen: set[Hashable] = set()
        self._left = REPEATS_MAX

    def check(self, wanted: Hashable) -> None:
        """BrokerError when a request has asked for too much a second time."""
        if wanted in self._seen:
            self._left -= 1
            if self._left < 0:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "The request asks for the same too often.")
        self._seen.add(wanted)
