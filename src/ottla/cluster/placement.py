"""Assigns replicas of partitions to brokers. Pure.

Without racks the first replica of partition i goes to broker (i + shift) mod n and the others to the brokers after it,
with a gap that grows after each round over all brokers. So when a broker fails, the other replicas of its partitions
are spread over all remaining brokers.

With racks the brokers are first put in an order that alternates racks (a1 b1 c1 a2 b2 ...), and a broker is skipped
while it or its rack holds a replica and others hold none yet. This is Kafka's algorithm: with the same `shift` and
`gap` both give the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Assignment = list[tuple[int, ...]]


def assign(
    brokers: Mapping[int, str | None], partitions: int, replicas: int, *, shift: int = 0, gap: int = 0, first: int = 0
) -> Assignment:
    """Replicas for partitions first, first + 1 ...; `brokers` maps ids to racks. Racks count if every broker has one.

    `shift` and `gap` are random starting points of the first replica and of the others; any number is valid.
    """
    if partitions <= 0:
        raise BrokerError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if replicas <= 0:
        raise BrokerError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replicas > len(brokers):
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replicas} time(s): The target replication factor of {replicas} cannot "
            f"be reached because only {len(brokers)} broker(s) are registered.",
        )
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    if brokers and len(racks) == len(brokers):
        return _aware(racks, partitions, replicas, shift, gap, first)
    return _unaware(sorted(brokers), partitions, replicas, shift, gap, first)


def _unaware(brokers: list[int], partitions: int, replicas: int, shift: int, gap: int, first: int) -> Assignment:
    count = len(brokers)
    assignment: Assignment = []
    for index in range(first, first + partitions):
        if index > 0 and index % count == 0:
            gap += 1
        leader = (index + shift) % count
        others = (brokers[_position(leader, gap, j, count)] for j in range(replicas - 1))
        assignment.append((brokers[leader], *others))
    return assignment


def _aware(racks: Mapping[int, str], partitions: int, replicas: int, shift: int, gap: int, first: int) -> Assignment:
    brokers, rack_count = alternate_racks(racks), len(set(racks.values()))
    count = len(brokers)
    assignment: Assignment = []
    for index in range(first, first + partitions):
        if index > 0 and index % count == 0:
            gap += 1
        start = (index + shift) % count
        chosen = [brokers[start]]
        used = {racks[brokers[start]]}
        step = 0
        while len(chosen) < replicas:
            # A gap in multiples of the rack count keeps the alternation of racks.
            broker = brokers[_position(start, gap * rack_count, step, count)]
            step += 1
            fresh_rack = racks[broker] not in used or len(used) == rack_count
            fresh_broker = broker not in chosen or len(set(chosen)) == count
            if fresh_rack and fresh_broker:
                chosen.append(broker)
                used.add(racks[broker])
        assignment.append(tuple(chosen))
    return assignment


def alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """Brokers in an order that takes one of each rack in turn."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    order: list[int] = []
    waiting = [iter(by_rack[rack]) for rack in sorted(by_rack)]
    while len(order) < len(racks):
        order.extend(_heads(waiting))
    return order


def _heads(waiting: Iterable[Iterable[int]]) -> list[int]:
    return [broker for brokers in waiting if (broker := next(iter(brokers), None)) is not None]


def _position(first: int, gap: int, replica: int, count: int) -> int:
    return (first + 1 + (gap + replica) % (count - 1)) % count
