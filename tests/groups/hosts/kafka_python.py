"""Members of kafka-python."""

from __future__ import annotations

from groups.hosts.program import Member, names, serve
from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class KafkaPython(Member):
    def consume(self) -> None:
        consumer = KafkaConsumer(
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
        consumer.subscribe(self.topics, listener=Listener(self))
        while not self.leaving.is_set():
            # Long: kafka-python 3.0 may forget an assignment when a poll ends in the middle of a rebalance.
            try:
                records = consumer.poll(timeout_ms=5000, max_records=200)
            except KafkaError as failure:
                self.emit("raised", error=type(failure).__name__)
                continue
            found = {f"{place.topic}-{place.partition}": [record.offset for record in some]
                     for place, some in records.items()}  # fmt: skip
            if offsets := self.polled(found):
                self.emit("committing", offsets=offsets)
                try:
                    consumer.commit({place: OffsetAndMetadata(some[-1].offset + 1, "", -1)
                                     for place, some in records.items()})  # fmt: skip
                except KafkaError as failure:
                    self.emit("refused", offsets=offsets, error=type(failure).__name__)
                else:
                    self.emit("committed", offsets=offsets)
        consumer.close()


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the library is not typed
    def __init__(self, member: Member) -> None:
        self.member = member

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self.member.emit("assigned", parts=names(assigned))

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self.member.emit("revoked", parts=names(revoked))

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        self.member.emit("lost", parts=names(lost))


if __name__ == "__main__":
    serve(KafkaPython)
