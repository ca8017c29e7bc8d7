"""One partition that this broker leads: its log, its epoch, its high watermark, and who waits for it.

With one replica the in-sync set is this broker alone, so whatever is in the log is committed: the high watermark is the
log's end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from ottla.log.log import Appended, Log
    from ottla.replica.waits import Wait


class Partition:
    __slots__ = ("epoch", "high", "index", "log", "topic", "topic_id", "waits")

    def __init__(self, topic: str, index: int, topic_id: bytes, log: Log, epoch: int) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.epoch = epoch
        self.high = log.end
        self.waits: list[Wait] = []

    def append(self, data: memoryview, now_ms: int, produce_version: int) -> Appended:
        log = self.log
        size_before = log.size
        appended = log.append(data, epoch=self.epoch, now_ms=now_ms, produce_version=produce_version)
        self.high = log.high = log.end
        if self.waits:
            grown = log.size - size_before
            for wait in self.waits:
                wait.grow(grown)
        return appended

    def check_epoch(self, epoch: int) -> None:
        """Refuse a client that knows an older or a newer leader than we are; -1 does not ask."""
        if epoch == -1 or epoch == self.epoch:
            return
        raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH if epoch < self.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH)

    def wake(self) -> None:
        """Something other than an append happened that waiting fetches must report."""
        for wait in self.waits:
            wait.wake()
