"""Produce and consume over TLS with Apache Kafka's Java client: what encryption costs each broker.

Separate brokers with an SSL listener beside the plain one, and a generated certificate (P-256, as PEM for
both); TLS 1.3 and the suite that the client and the broker negotiate. Kafka is warmed up before anything counts. Bytes
are those of record values, as in the plain rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.consume import Consume
from bench.produce import Produce
from bench.rows import Goal, Row, Sample, Setting

if TYPE_CHECKING:
    from bench.brokers import Broker

KB: Final = 1024
WARM_S: Final = 4.0


@dataclass
class Encrypted(Row):
    """A row of the Java client on a broker with TLS."""

    plain: Produce | Consume = field(kw_only=True)
    _brokers: dict[str, Broker] = field(default_factory=dict, init=False, repr=False)

    def prepare(self, broker: Broker, setting: Setting) -> None:
        self._brokers[broker.name] = own = type(broker)(tls=True).start()
        self.plain.prepare(own, setting)
        if own.name == "kafka" and setting.warm_s:
            self.plain.run(own, Setting(setting.client, seconds=WARM_S, fill_mb=setting.fill_mb))

    def run(self, broker: Broker, setting: Setting) -> Sample:
        return self.plain.run(self._brokers[broker.name], setting)

    def renew(self, broker: Broker, setting: Setting) -> None:
        self.plain.renew(self._brokers[broker.name], setting)

    def clean(self, broker: Broker, setting: Setting) -> None:
        self._brokers.pop(broker.name).close()


def encrypted(plain: Produce | Consume) -> Encrypted:
    return Encrypted(f"{plain.name}, TLS", (Goal("mb_s", 1.0), Goal("cpu_s_gb", 1.0)), plain=plain)


def rows() -> list[Encrypted]:
    return [
        encrypted(Produce("produce 100 B, 16 kB", size=100, batch=16 * KB, acks=1, codec="none")),
        encrypted(Produce("produce 1000 B, 128 kB", size=1000, batch=128 * KB, acks=1, codec="none", partitions=6)),
        encrypted(Consume("consume 100 B, 16 kB", size=100, batch=16 * KB)),
        encrypted(Consume("consume 1000 B, 128 kB", size=1000, batch=128 * KB, partitions=6)),
    ]
