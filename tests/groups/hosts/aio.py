"""Members of aiokafka, each with an event loop of its own.

Callbacks come while the member works, so a lock keeps work and revocation apart, as the library's manual advises; not
while it polls, because a poll ends after the rebalance. The library has no callback for partitions that are lost, and
none when a consumer stops.
"""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError
from groups.hosts.program import Member, names, serve

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class AioKafka(Member):
    def consume(self) -> None:
        asyncio.run(self.work())

    async def work(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            client_id=self.name,
            group_instance_id=self.instance,
            partition_assignment_strategy=[ASSIGNORS[self.assignor]],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=self.session_ms,
            heartbeat_interval_ms=self.heartbeat_ms,
            fetch_max_wait_ms=50,
            retry_backoff_ms=50,
        )
        listener = Listener(self)
        consumer.subscribe(self.topics, listener=listener)
        await consumer.start()
        while not self.leaving.is_set():
            try:
                records = await consumer.getmany(timeout_ms=20, max_records=200)
            except KafkaError as failure:
                self.emit("raised", error=type(failure).__name__)
                continue
            async with listener.working:  # free: whoever holds it lets nobody else run
                found = {f"{place.topic}-{place.partition}": [record.offset for record in some]
                         for place, some in records.items()}  # fmt: skip
                if offsets := self.polled(found):
                    self.emit("committing", offsets=offsets)
                    try:
                        await consumer.commit({place: some[-1].offset + 1 for place, some in records.items()})
                    except KafkaError as failure:
                        self.emit("refused", offsets=offsets, error=type(failure).__name__)
                    else:
                        self.emit("committed", offsets=offsets)
        self.emit("revoked", parts=names(consumer.assignment()))
        await consumer.stop()


class Listener(ConsumerRebalanceListener):
    def __init__(self, member: Member) -> None:
        self.member = member
        self.working = asyncio.Lock()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.member.emit("assigned", parts=names(assigned))

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        async with self.working:
            self.member.emit("revoked", parts=names(revoked))


if __name__ == "__main__":
    serve(AioKafka)
