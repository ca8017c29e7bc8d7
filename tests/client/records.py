"""Record batches of numbers, and reading them back: what is lost, doubled or out of order is seen at once."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import judge
from process import Ottla
from waiting import wait_until

from ottla.client import offsets
from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.fetching import fetch
from ottla.records import batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.client.fetching import Piece
    from ottla.client.transaction import ProducerIdentity

Broker = Ottla | judge.Kafka
TIMEOUT_S = 60.0
counter = itertools.count()


def fresh(cluster: Cluster, partitions: int = 1, **configs: str) -> TopicPartition:
    """Partition 0 of a new topic."""
    name = f"topic-{next(counter)}-{time.monotonic_ns()}"
    cluster.create(name, partitions, configs={key.replace("_", "."): value for key, value in configs.items()})
    return TopicPartition(name, 0)


def numbers(
    first: int, count: int, *, size: int = 0, identity: ProducerIdentity | None = None, sequence: int = -1
) -> bytes:
    """One batch with the numbers from `first` on, each padded to `size` bytes."""
    now_ms = int(time.time() * 1000)
    records = [
        batch.Record(index, now_ms, None, str(first + index).encode().ljust(size, b" ")) for index in range(count)
    ]
    if identity is None:
        return batch.build(records)
    return batch.build(
        records,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=first if sequence < 0 else sequence,
        transactional=identity.transactional_id is not None,
    )


def read(cluster: Cluster, where: TopicPartition, *, committed: bool = False) -> list[int]:
    """Every number in a partition."""
    (first,) = offsets.earliest(cluster, [where]).values()
    (last,) = offsets.latest(cluster, [where], committed=committed).values()
    return list(values(fetch(cluster, where, start=first, stop=last, committed=committed), first, last))


def decided(cluster: Cluster, where: TopicPartition) -> None:
    """Wait until no transaction is open in a partition: coordinators answer before its marker is written."""
    wait_until(
        lambda: offsets.latest(cluster, [where], committed=True) == offsets.latest(cluster, [where]),
        f"no transaction is open in {where}",
    )


def values(pieces: Iterable[Piece], start: int, stop: int) -> Iterator[int]:
    """The numbers at these offsets, of pieces that follow one another; without those that they know to be aborted."""
    position = start
    gone: dict[int, int] = {}
    for piece in pieces:
        assert piece.start >= position
        aborted = sorted(piece.aborted or [], key=lambda one: one[1])
        for entry in batch.entries(piece.data):
            header = batch.header(piece.data, entry.position)
            while aborted and aborted[0][1] <= header.last_offset:
                producer, first = aborted.pop(0)
                gone[producer] = first
            if header.control:
                gone.pop(header.producer_id, None)
                continue
            if header.transactional and header.producer_id in gone:
                continue
            for record in batch.iterate(piece.data, entry.position):
                if position <= record.offset < stop:
                    assert record.value is not None
                    yield int(record.value)
        position = piece.end


def restart(broker: Broker) -> None:
    """Kill it, and start it again where it was."""
    if isinstance(broker, Ottla):
        broker.kill()
    else:
        broker.stop(kill=True)
    broker.start()
