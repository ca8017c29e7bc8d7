"""Counters of the data written to and read from one topic since this broker hosts it, for the metrics.

The partitions of a topic share one object, so that the counters do not shrink when a partition moves away.
"""

from __future__ import annotations


class Traffic:
    __slots__ = ("bytes_in", "bytes_out", "messages_in", "replicated_in", "replicated_out")

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.replicated_in = 0  # as a follower
        self.replicated_out = 0  # to followers

    def add(self, other: Traffic) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
