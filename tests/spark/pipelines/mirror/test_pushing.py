"""Batches pushed to a leader: order, limits, errors, with a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from spark import copies, filling

from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.failure import Refused
from ottla.client.transaction import ProducerIdentity, end, enlist, identify
from ottla.records import batch
from ottla.records.batch import Record
from ottla.spark.pipelines.mirror.pushing import Pusher

if TYPE_CHECKING:
    from collections.abc import Callable

    from process import Ottla


def test_batches_of_all_sizes_arrive_in_order(ottla: Ottla, fresh: Callable[[str], str]) -> None:
    """Some are far larger than the buffers of a socket, so that a request goes out piece by piece."""
    topic = fresh("pushed")
    filling.create(ottla, topic, 1, max_message_bytes="20000000")
    where = TopicPartition(topic, 0)
    with Cluster(ottla.bootstrap) as cluster:
        identity = identify(cluster, topic, timeout_ms=60_000)
        pusher = Pusher(cluster, where, topic)
        sequence, values = 0, []
        for transaction in range(2):
            enlist(cluster, identity, [where])
            pusher.begin()
            for number in range(12):
                value = b"%d" % number * (1 + 300_000 * (number % 5))
                values.append(value)
                pusher.send([made(identity, sequence, value)])
                sequence += 1
            pusher.flush()
            after = end(cluster, identity, commit=True)
            if after != identity:
                identity, sequence = after, 0
            assert len(copies.content(ottla, topic)[0]) == 12 * (transaction + 1)
        pusher.close()
    assert [value for _, _, value, _ in copies.content(ottla, topic)[0]] == values


def test_what_the_broker_refuses_is_raised(ottla: Ottla, fresh: Callable[[str], str]) -> None:
    topic = fresh("refused")
    filling.create(ottla, topic, 1, max_message_bytes="1000")
    where = TopicPartition(topic, 0)
    with Cluster(ottla.bootstrap) as cluster:
        identity = identify(cluster, topic, timeout_ms=60_000)
        enlist(cluster, identity, [where])
        pusher = Pusher(cluster, where, topic)
        pusher.begin()
        pusher.send([made(identity, 0, bytes(10)), made(identity, 1, bytes(5000))])
        with pytest.raises(Refused, match=r"it has \d+ bytes; raise the topic's max\.message\.bytes"):
            pusher.flush()
        pusher.close()
        end(cluster, identity, commit=False)


def made(identity: ProducerIdentity, sequence: int, value: bytes) -> bytes:
    return batch.build(
        [Record(0, filling.NOW_MS, None, value)],
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=sequence,
        transactional=True,
    )
