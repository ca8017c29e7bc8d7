"""One partition that is copied from its leader: builds the next request, and applies responses to the log.

A new `Copy` is made each time the partition starts to follow a leader. A response that arrives after the role has
changed finds another `Copy`, or none, and is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import BrokerError, ErrorCode
from ottla.log.truncation import restart
from ottla.replica.follower import UNKNOWN, Cut, Restart, agreement, first_cut, high_watermark, out_of_range
from ottla.replica.throttle import is_throttled
from ottla.wire.messages.fetch import FetchPartition

if TYPE_CHECKING:
    from ottla.log.store import LogStore
    from ottla.replica.partition import Partition
    from ottla.wire.messages.fetch import PartitionData


class Copy:
    __slots__ = (
        "_store",
        "asked",
        "epoch",
        "failures",
        "in_sync",
        "index",
        "partition",
        "seeks",
        "topic",
        "topic_id",
        "unsure",
    )

    def __init__(self, partition: Partition, store: LogStore) -> None:
        self.partition = partition
        self.topic = partition.topic
        self.index = partition.index
        self.topic_id = partition.topic_id
        self.epoch = partition.epoch
        self.asked = False  # whether a fetch named it, so that responses concern this copy
        self.unsure = False  # request the end offsets of epochs from the leader first
        self.seeks = False  # request the start and end offset of the leader's log first
        self.failures = 0  # since the last success
        self.in_sync = False  # as far as a follower can tell
        self._store = store

    def begin(self, *, tells_diverging: bool) -> None:
        """Called before the first fetch. `tells_diverging`: fetch responses report where logs diverge."""
        log = self.partition.log
        cut = first_cut(log.epochs, log.end, log.high)
        self._cut(cut)
        self.unsure = not cut.agrees and not tells_diverging

    def build_request(self, size_max: int) -> FetchPartition:
        log = self.partition.log
        return FetchPartition(
            partition=self.index,
            current_leader_epoch=self.epoch,
            fetch_offset=log.end,
            last_fetched_epoch=log.latest_epoch,
            log_start_offset=log.start,
            partition_max_bytes=size_max,
        )

    def take(self, data: PartitionData) -> int:
        """Apply a response. Returns how many bytes were copied. BrokerError: try again later."""
        code = data.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.seeks = True
            return 0
        if code:
            raise BrokerError(ErrorCode(code), f"{self.topic}-{self.index}: the leader says {ErrorCode(code).name}")
        if data.diverging_epoch.end_offset >= 0:
            self.parts_at(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            return 0
        log, size = self.partition.log, 0
        records = data.records
        if records:
            assert isinstance(records, (memoryview, bytes)), "an answer that was received"
            before = log.end
            self.partition.replicate(memoryview(records), now_ms=self._store.clock.now_ms())
            size = len(records) if log.end > before else 0
        self.in_sync = data.high_watermark <= log.end
        self.partition.advance(high_watermark(data.high_watermark, log.end, log.high))
        if data.log_start_offset > log.start:
            log.delete_before(min(data.log_start_offset, log.high))
        return size

    def parts_at(self, leader_epoch: int, leader_end: int) -> None:
        """Truncate to match the leader, given its largest epoch not above ours and the end offset of that epoch."""
        log = self.partition.log
        cut = agreement(log.epochs, log.end, leader_epoch, leader_end, log.high)
        self._cut(cut)
        self.unsure = self.unsure and not cut.agrees and log.latest_epoch != UNKNOWN

    def seek(self, leader_start: int, leader_end: int) -> None:
        """Truncate or restart, given the start and end of the leader's log. The end of our log is outside of it."""
        self.seeks = False
        self._cut(out_of_range(self.partition.log.end, leader_start, leader_end))

    def _cut(self, cut: Cut | Restart) -> None:
        log = self.partition.log
        if isinstance(cut, Restart):
            restart(log, cut.offset, now_ms=self._store.clock.now_ms())
            self._store.cleaner.note_truncation(log)
        else:
            self._store.truncate(log, cut.offset)

    def is_throttled(self, me: int) -> bool:
        """Whether its bytes count against the follower's rate."""
        throttled = self.partition.log.config.follower_replication_throttled_replicas
        return bool(throttled) and not self.in_sync and is_throttled(throttled, self.index, me)
