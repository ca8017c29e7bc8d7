"""Counts the leader elections of this broker as controller, over all its terms. For the metrics."""

from __future__ import annotations


class Tally:
    def __init__(self) -> None:
        self.elections = 0
        self.unclean = 0  # of leaders that were not in sync
