"""One partition that this broker leads: its log, its epoch, its high watermark, and who waits for it.

With one replica the in-sync set is this broker alone, so whatever is in the log is committed: the high watermark is the
log's end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.cluster.topic_names import is_internal
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ottla.log.flush import Flusher
    from ottla.log.log import Appended, Log
    from ottla.records.validate import Accepted
    from ottla.replica.waits import Wait


class Partition:
    __slots__ = ("epoch", "flusher", "index", "internal", "log", "topic", "topic_id", "waits")

    def __init__(
        self, topic: str, index: int, topic_id: bytes, log: Log, epoch: int, flusher: Flusher | None = None
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.internal = is_internal(topic)  # written by coordinators, not by clients
        self.log = log
        self.flusher = flusher
        self.epoch = epoch
        if log.fault is None:
            log.assign_epoch(epoch)  # a consumer may ask where it began before anything is written in it
        self.waits: list[Wait] = []

    def append(
        self,
        data: memoryview,
        now_ms: int,
        produce_version: int,
        *,
        client: bool = True,
        accepted: Accepted | None = None,
    ) -> Appended:
        appended = self.log.append(
            data,
            epoch=self.epoch,
            now_ms=now_ms,
            produce_version=produce_version,
            client=client,
            accepted=accepted,
        )
        if self.waits and not appended.duplicate:
            size = len(data)
            for wait in self.waits:
                wait.grow(self, size)
        return appended

    def forced(self) -> Coroutine[Any, Any, None] | None:
        """To be awaited before what was appended is acknowledged, where `flush.messages` asks for that."""
        log = self.log
        if log.owed <= log.recovery_point:
            return None
        if self.flusher is None:
            log.flush(log.flushed_ms)
            return None
        return self.flusher.flushed(log, log.owed)

    def committed(self, offset: int) -> asyncio.Future[None] | None:
        """None: everything below the offset is committed. Else a future that is done then."""
        forced = self.forced()
        return None if forced is None else asyncio.ensure_future(forced)

    @property
    def led(self) -> bool:
        return True

    @property
    def high(self) -> int:
        return self.log.end

    def check_epoch(self, epoch: int) -> None:
        """Refuse a client that knows an older or a newer leader than we are; a negative epoch does not ask."""
        if epoch < 0 or epoch == self.epoch:
            return
        raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH if epoch < self.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH)

    def wake(self) -> None:
        """Something other than an append happened that waiting fetches must report."""
        for wait in self.waits:
            wait.wake()
