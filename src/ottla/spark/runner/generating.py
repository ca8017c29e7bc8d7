"""Generated input for trying a pipeline: records produced at a steady rate by an unmodified Kafka client."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client.failure import Failed
from ottla.client.security import Security, security

if TYPE_CHECKING:
    from ottla.spark.runner import Run

SLICE_S = 0.05  # records are sent in bursts too short to notice
FLUSH_S = 60.0


class Record(NamedTuple):
    topic: str
    key: str | bytes | None
    value: str | bytes | None
    timestamp_ms: int | None = None  # None: when it is sent
    headers: tuple[tuple[str, bytes], ...] = ()


def send(run: "Run", records: Iterable[Record]) -> int:
    """Produce records until they end, until `run.count`, or until the run is stopped. Returns how many."""
    producer = new_producer(run)
    failures: list[Any] = []

    def on_delivery(error: object, message: object) -> None:
        if error is not None:
            failures.append(error)

    began = time.monotonic()
    sent = 0
    for record in records:
        if sent == run.count or failures:
            break
        if run.rate and sent >= (time.monotonic() - began) * run.rate:
            producer.poll(0)
            run.pause(max(SLICE_S, sent / run.rate - (time.monotonic() - began)))
        if sent % 256 == 0 and run.stopping:
            break
        more: dict[str, Any] = {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
        while True:
            try:
                producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    headers=list(record.headers),
                    on_delivery=on_delivery,
                    **more,
                )
                break
            except BufferError:
                producer.poll(0.1)
        sent += 1
    if producer.flush(FLUSH_S) or failures:
        raise Failed(f"generated input did not arrive at {run.bootstrap} ({failures[0] if failures else 'no answer'})")
    return sent


def new_producer(run: "Run") -> Any:
    try:
        from confluent_kafka import Producer
    except ModuleNotFoundError:
        raise Failed("generated input needs confluent_kafka: pip install 'ottla[tools]'") from None
    return Producer(
        {
            "bootstrap.servers": run.bootstrap,
            "client.id": f"ottla-{run.name}-generate",
            "linger.ms": 20,
            "enable.idempotence": True,
            "log_level": 0,
            **librdkafka(security(run.properties)),
        }
    )


def librdkafka(own: Security) -> dict[str, str]:
    """The same security settings under librdkafka's names; those not given are left out."""
    own = own.resolve()
    named = {
        "security.protocol": own.protocol,
        "ssl.ca.location": own.trust,
        "ssl.ca.pem": own.trust_text,
        "ssl.certificate.pem": own.key_chain,
        "ssl.key.pem": own.key,
        "ssl.key.password": own.key_password,
        "ssl.endpoint.identification.algorithm": "" if own.check_host else "none",
        "sasl.mechanism": own.mechanism,
        "sasl.username": own.user,
        "sasl.password": own.password,
    }
    if own.key_store_type == "PEM":
        named |= {"ssl.certificate.location": own.key_store, "ssl.key.location": own.key_store}
    else:
        named |= {"ssl.keystore.location": own.key_store, "ssl.keystore.password": own.key_store_password}
    return {name: value for name, value in named.items() if value}
