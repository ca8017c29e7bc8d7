"""The transaction coordinator: the machines of `__transaction_state`, and the writing of markers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coord.coordinator import Coordinator, TopicShape
from ottla.coord.transactions.ending import Endings
from ottla.coord.transactions.machine import TransactionMachine, TransactionRules
from ottla.coord.transactions.verification import Verification

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.cluster.commands import Commands
    from ottla.cluster.image import Image
    from ottla.cluster.metadata import Metadata
    from ottla.cluster.peers import Peers
    from ottla.config import BrokerConfig
    from ottla.coord.transactions.markers import MarkerWriter
    from ottla.coord.transactions.transaction import WriteMarkers
    from ottla.replica.replicas import Replicas

TOPIC = "__transaction_state"


class Transactions(Coordinator[TransactionMachine]):
    def __init__(
        self,
        config: BrokerConfig,
        metadata: Metadata,
        controller: Commands,
        replicas: Replicas,
        markers: MarkerWriter,
        clock: Clock,
        peers: Peers | None = None,
    ) -> None:
        rules = TransactionRules(
            config.transaction_max_timeout_ms,
            config.transactional_id_expiration_ms,
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            config.transaction_remove_expired_transaction_cleanup_interval_ms,
        )
        shape = TopicShape(
            TOPIC,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            {
                "min.insync.replicas": str(min_isr(config)),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
            },
        )
        super().__init__(
            shape, lambda _: TransactionMachine(rules), metadata, controller, replicas, clock, self._write_markers
        )
        self._endings = Endings(self.runtime, metadata, markers, peers, TOPIC)
        self.verification = Verification(self, metadata, peers)
        markers.subscribe(self.verification.end_transaction)

    def start(self) -> None:
        super().start()
        self._metadata.subscribe(self._follow_brokers)

    def _write_markers(self, index: int, effect: WriteMarkers) -> None:
        self._endings.write(index, effect)

    def _follow_brokers(self, old: Image | None, new: Image) -> None:
        if old is None or old.brokers is new.brokers:
            return
        for broker in old.brokers.values():
            if new.brokers.get(broker.id) != broker:
                self._endings.drop_broker(broker.id)
                self.verification.drop_broker(broker.id)

    async def stop(self) -> None:
        await super().stop()
        await self._endings.stop()
        await self.verification.stop()


def min_isr(config: BrokerConfig) -> int:
    """min.insync.replicas of __transaction_state. A standalone broker needs 1."""
    if not config.zookeeper_connect:
        return 1
    return min(config.transaction_state_log_min_isr, config.transaction_state_log_replication_factor)
