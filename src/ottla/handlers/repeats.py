"""Limits how often one request may ask for the same thing.

Apache Kafka answers every time. Ottla answers only a few times: no client needs more, and a small request could
otherwise ask for a large thing, such as a group with all its members, sixty thousand times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Hashable

REPEATS_MAX = 16


class Repeats:
    """Counts what one request has asked for so far."""

    def __init__(self) -> None:
        self._seen: set[Hashable] = set()
        self._left = REPEATS_MAX

    def check(self, wanted: Hashable) -> None:
        """BrokerError when a request repeats itself too often."""
        if wanted in self._seen:
            self._left -= 1
            if self._left < 0:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "The request asks for the same thing too often.")
        self._seen.add(wanted)
