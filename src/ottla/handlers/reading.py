"""Helpers of Fetch for one partition: find it, decide what to report, convert records for old clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import BrokerError, ErrorCode
from ottla.wire.messages.fetch import AbortedTransaction, PartitionData

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.handlers.call import Parts
    from ottla.log.segment import Slice
    from ottla.replica.partition import Partition
    from ottla.replica.sessions import FetchSession, Watched

RACKS, BY_ID = 11, 13  # the first versions of Fetch with racks, and with topic ids
DEBUGGING_CONSUMER = -2  # a reader that may read above the high watermark
CONVERTED_SIZE_MAX = 256 << 10  # an old client gets its records in portions, and fetches again


def choose_finder(parts: Parts, version: int, replica_id: int) -> Callable[[Any, int], Partition]:
    """Choose how a fetch finds its partitions: by name or by id, at the leader only or at any replica."""
    replicas = parts.replicas
    anywhere = replica_id == DEBUGGING_CONSUMER or (replica_id < 0 and version >= RACKS)
    if version >= BY_ID:
        return replicas.require_hosted_by_id if anywhere else replicas.require_led_by_id
    return replicas.require_hosted if anywhere else replicas.require_led


def is_up_to_date(session: FetchSession, partition: Partition, one: Watched, data: PartitionData) -> bool:
    """Whether a follower's partition can be skipped until something changes."""
    followers = partition.followers
    if followers is None or session.replica not in followers.isr or data.diverging_epoch.end_offset >= 0:
        return False  # it may have to join the ISR, or truncate first
    return one.offset == partition.log.end  # otherwise the answer was full, or throttled


def refuse(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index, error_code=code, high_watermark=-1, aborted_transactions=[], records=b""
    )


def has_news(one: Watched, data: PartitionData) -> bool:
    """Whether an incremental answer must contain this partition."""
    return (
        bool(data.records)
        or one.high != data.high_watermark
        or one.start != data.log_start_offset
        or data.error_code != 0
        or data.diverging_epoch.end_offset >= 0
    )


def remember(one: Watched, data: PartitionData) -> None:
    """Note what the client knows after this answer. Without news nothing changes."""
    # After an error the client must get the next state, whatever the high watermark is.
    one.high = data.high_watermark if data.error_code == 0 else -1
    one.start = data.log_start_offset


def list_aborted(partition: Partition, offset: int, limit: int, found: Slice) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=producer_id, first_offset=first)
        for producer_id, first in partition.log.list_aborted(offset, limit, found)
    ]


def convert(partition: Partition, offset: int, size_max: int, limit: int, magic: int, *, min_one: bool) -> bytes:
    """The records from offset on in an older format, cut to size_max; with `min_one` the first message is whole.

    At least one batch is read, however large: the single messages that an old client gets may fit.
    """
    from ottla.records.legacy import down_convert

    found = partition.log.read(offset, min(size_max, CONVERTED_SIZE_MAX), offset_max=limit, min_one=True)
    if found is None:
        return b""
    if not partition.log.config.message_downconversion_enable:
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, "message.downconversion.enable is false")
    data = down_convert(found.read(), magic, offset)
    first = 12 + int.from_bytes(data[8:12]) if min_one and len(data) >= 12 else 0
    return data[: max(size_max, first)]
