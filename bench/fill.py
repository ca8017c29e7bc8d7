"""Fill topics with many records quickly: one piece is encoded, and its batches are sent again and again."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

from bench.wire import text
from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.producing import Sender
from ottla.records import native
from ottla.records.compress import Codec

BATCH_BYTES = 64 * 1024
PIECE_BYTES = 16_000_000  # of values: far more than a page of Parquet or its dictionary, which must not see repeats
NOW_MS = 1_760_000_000_000
KEEP = {"retention.ms": "-1"}


@cache
def prebuilt(size: int) -> tuple[list[bytes], int]:
    """Batches with keys of 10 bytes and values of `size` bytes, and how many records they hold."""
    rows = max(1, PIECE_BYTES // size)
    encoded = native.encode_columns(
        pa.array([b"%010d" % (number * 7919 % 10**10) for number in range(rows)], pa.binary()),
        pa.array([text(size, number) for number in range(rows)], pa.binary()),
        None,
        pa.array(range(NOW_MS, NOW_MS + rows), pa.int64()),
        None,
        partition_count=1,
        codec=Codec.NONE,
        level=None,
        batch_bytes=BATCH_BYTES,
        now_ms=NOW_MS,
    )
    return encoded[0], rows


def fill(bootstrap: str, topic: str, records: int, size: int, partitions: int) -> int:
    """Write at least `records` records, the same number to each partition; return how many."""
    batches, each = prebuilt(size)
    if records < each * partitions:  # a smoke test: only part of a piece
        batches, each = batches[: max(1, len(batches) * records // (each * partitions))], 0
        each = sum(int.from_bytes(batch[57:61], "big") for batch in batches)
    rounds = max(1, round(records / (each * partitions)))
    with Cluster(bootstrap) as cluster:
        cluster.create(topic, partitions, configs=KEEP)
        sender = Sender(cluster)
        for _ in range(rounds):
            for index in range(partitions):
                sender.send(TopicPartition(topic, index), batches)
        sender.flush()
        sender.close()
    return rounds * partitions * each
