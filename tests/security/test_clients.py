"""Clients of three families, with good and bad credentials, on listeners of every protocol."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from security.tokens import tokens_of_now
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from security.conftest import Place

COUNT = 300
VALUE = b"v" * 20_000  # 6 MB in all: answers are larger than what is encrypted at once
TIMEOUT_S = 60.0
PLAIN = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "wonder land"}
SCRAM = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "carol", "sasl.password": "pencil"}
UNSIGNED = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.config": "principal=a",
    "enable.sasl.oauthbearer.unsecure.jwt": "true",
}


def confluent(place: Place, listener: str, **options: str) -> dict[str, Any]:
    protocol = {"MUTUAL": "SSL", "MISNAMED": "SSL", "OLD": "SSL"}.get(listener, listener)
    tls = {"ssl.ca.location": str(place.ca)} if protocol.endswith("SSL") else {}
    return {
        "bootstrap.servers": place.address(listener),
        "security.protocol": protocol,
        "log_level": 0,
        **tls,
        **options,
    }


def own_certificate(path: Path) -> dict[str, str]:
    return {"ssl.key.location": str(path), "ssl.certificate.location": str(path)}


@pytest.fixture(scope="module")
def carol(place: Place) -> None:
    """A user that is kept by the broker."""
    keep(place, "carol", "pencil")


def keep(place: Place, name: str, password: str) -> None:
    client = AdminClient(confluent(place, "PLAINTEXT"))
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        wish = UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), password.encode())
        for future in client.alter_user_scram_credentials([wish]).values():
            future.result(TIMEOUT_S)


WAYS = {
    "plain text": ("PLAINTEXT", {}),
    "tls": ("SSL", {}),
    "tls 1.2": ("OLD", {}),
    "certificate": ("MUTUAL", {"own": "client"}),
    "plain": ("SASL_PLAINTEXT", PLAIN),
    "plain, tls": ("SASL_SSL", PLAIN),
    "scram 256": ("SASL_PLAINTEXT", {**SCRAM, "sasl.mechanism": "SCRAM-SHA-256"}),
    "scram 512, tls": ("SASL_SSL", SCRAM),
}


@pytest.mark.parametrize("way", WAYS)
def test_records_go_there_and_back(place: Place, carol: None, way: str) -> None:
    listener, options = WAYS[way]
    said = {name: text for name, text in options.items() if name != "own"}
    said |= own_certificate(place.client) if "own" in options else {}
    topic = "there-" + way.replace(" ", "-").replace(",", "")
    producer = Producer(confluent(place, listener, **said))
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number + VALUE)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer(confluent(place, listener, **said, **{"group.id": topic, "auto.offset.reset": "earliest"}))
    consumer.subscribe([topic])
    found: list[bytes] = []

    def read() -> bool:
        found.extend(message.value() for message in consumer.consume(COUNT, 1.0) if message.error() is None)
        return len(found) >= COUNT

    try:
        wait_until(read, "all records")
    finally:
        consumer.close()
    assert found == [b"%d" % number + VALUE for number in range(COUNT)]


STRANGERS = {
    "wrong password": ("SASL_SSL", {**PLAIN, "sasl.password": "wonderland"}, "_AUTHENTICATION"),
    "wrong name": ("SASL_SSL", {**PLAIN, "sasl.username": "alic"}, "_AUTHENTICATION"),
    "wrong scram password": ("SASL_SSL", {**SCRAM, "sasl.password": "x"}, "_AUTHENTICATION"),
    "wrong scram name": ("SASL_SSL", {**SCRAM, "sasl.username": "x"}, "_AUTHENTICATION"),
    "no such mechanism": ("SASL_SSL", UNSIGNED, "_AUTHENTICATION"),
    "no login": ("SASL_PLAINTEXT", {"security.protocol": "PLAINTEXT"}, ""),
    "no certificate": ("MUTUAL", {}, "alert certificate required"),
    "an expired certificate": ("MUTUAL", {"own": "expired"}, "alert certificate expired"),
    "a broker of another name": ("MISNAMED", {}, "_SSL"),
    "a broker of another authority": ("SSL", {"trust": "stranger"}, "_SSL"),
    "no tls": ("SSL", {"security.protocol": "PLAINTEXT"}, ""),
    "tls where there is none": ("PLAINTEXT", {"security.protocol": "SSL", "trust": "ca"}, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", STRANGERS)
def test_who_proves_nothing_stays_out(place: Place, carol: None, case: str) -> None:
    listener, options, code = STRANGERS[case]
    said = {name: text for name, text in options.items() if name not in ("own", "trust")}
    said |= own_certificate(getattr(place, options["own"])) if "own" in options else {}
    said |= {"ssl.ca.location": str(getattr(place, options["trust"]))} if "trust" in options else {}
    errors: list[str] = []
    asking = AdminClient(
        {**confluent(place, listener, **said), "error_cb": lambda error: errors.append(f"{error.name()} {error.str()}")}
    )

    def refused() -> bool:
        try:
            asking.list_topics(timeout=1.0)
        except KafkaException:
            asking.poll(0.1)
            return any(code in name for name in errors)
        raise AssertionError(f"{case} came in")

    wait_until(refused, f"a refusal with {code}")


def test_kafka_python_comes_in_and_stays_out(place: Place, carol: None) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError

    def options(password: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": place.address("SASL_SSL"),
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(place.ca),
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": "carol",
            "sasl_plain_password": password,
        }

    producer = KafkaProducer(**options("pencil"))
    producer.send("kafka-python", b"hello").get(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer("kafka-python", **options("pencil"), auto_offset_reset="earliest")
    assert next(consumer).value == b"hello"
    consumer.close()
    with pytest.raises(KafkaError):
        KafkaProducer(**options("pen"), bootstrap_timeout_ms=1000)


def test_aiokafka_comes_in_and_stays_out(place: Place) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.errors import KafkaError

    trusting = ssl.create_default_context(cafile=str(place.ca))

    def options(password: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": place.address("SASL_SSL"),
            "security_protocol": "SASL_SSL",
            "ssl_context": trusting,
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "alice",
            "sasl_plain_password": password,
        }

    async def story() -> None:
        producer = AIOKafkaProducer(**options("wonder land"))
        await producer.start()
        await producer.send_and_wait("aiokafka", b"hello")
        await producer.stop()
        consumer = AIOKafkaConsumer("aiokafka", **options("wonder land"), auto_offset_reset="earliest")
        await consumer.start()
        assert (await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value == b"hello"
        await consumer.stop()
        stranger = AIOKafkaProducer(**options("wonderland"))
        with pytest.raises(KafkaError):
            await stranger.start()
        await stranger.stop()

    asyncio.run(story())


def test_kafka_python_comes_in_by_a_good_token_only(place: Place) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def __init__(self, said: str) -> None:
            self._said = said

        def token(self) -> str:
            return self._said

    def options(said: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": place.address("BEARER"),
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(place.ca),
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": Provider(said),
        }

    tokens = tokens_of_now()
    good = tokens.pop("good")
    producer = KafkaProducer(**options(good))
    producer.send("kafka-python-bearer", b"hello").get(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer("kafka-python-bearer", **options(good), auto_offset_reset="earliest")
    assert next(consumer).value == b"hello"
    consumer.close()
    for said in tokens.values():
        with pytest.raises(KafkaError):
            KafkaProducer(**options(said), bootstrap_timeout_ms=1000)


def test_aiokafka_comes_in_by_a_good_token_only(place: Place) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import KafkaError

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def __init__(self, said: str) -> None:
            self._said = said

        async def token(self) -> str:
            return self._said

    trusting = ssl.create_default_context(cafile=str(place.ca))

    def options(said: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": place.address("BEARER"),
            "security_protocol": "SASL_SSL",
            "ssl_context": trusting,
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": Provider(said),
        }

    async def story() -> None:
        tokens = tokens_of_now()
        good = tokens.pop("good")
        producer = AIOKafkaProducer(**options(good))
        await producer.start()
        await producer.send_and_wait("aiokafka-bearer", b"hello")
        await producer.stop()
        consumer = AIOKafkaConsumer("aiokafka-bearer", **options(good), auto_offset_reset="earliest")
        await consumer.start()
        assert (await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value == b"hello"
        await consumer.stop()
        for said in tokens.values():
            stranger = AIOKafkaProducer(**options(said))
            with pytest.raises(KafkaError):
                await stranger.start()
            await stranger.stop()

    asyncio.run(story())


def test_a_password_that_was_changed_counts_at_once(place: Place) -> None:
    keep(place, "dave", "first")
    said = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "dave"}
    first = AdminClient(confluent(place, "SASL_PLAINTEXT", **said, **{"sasl.password": "first"}))
    assert first.list_topics(timeout=TIMEOUT_S).brokers
    keep(place, "dave", "second")
    errors: list[str] = []
    late = AdminClient(
        {
            **confluent(place, "SASL_PLAINTEXT", **said, **{"sasl.password": "first"}),
            "error_cb": lambda error: errors.append(error.name()),
        }
    )
    with pytest.raises(KafkaException):
        late.list_topics(timeout=1.0)
    wait_until(lambda: late.poll(0.1) or "_AUTHENTICATION" in errors)
    second = AdminClient(confluent(place, "SASL_PLAINTEXT", **said, **{"sasl.password": "second"}))
    assert second.list_topics(timeout=TIMEOUT_S).brokers
