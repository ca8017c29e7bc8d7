"""kill -9 under load, a hundred times at random moments: nothing acknowledged is missing, nothing bad is served.

acks=1 and acks=-1 with plain and with idempotent producers (who repeat what had no answer after the restart, and must
find each record exactly once). Segments are small, so that kills meet rolls and index writes as well.
Each kill is followed by a start on the same folder; its time to the first answer is printed.
"""

from __future__ import annotations

import itertools
import random
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, Message, Producer
from durability.load import TOPIC, Load, Memory, Writer, check, prepare
from process import Ottla

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 8
PARTITIONS = 2
SETTINGS = {"log.index.interval.bytes": "256"}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("acks", "idempotent"), [(1, False), (-1, False)], ids=["acks=1", "acks=-1"])
def test_nothing_acknowledged_is_lost(seed: int, acks: int, idempotent: bool, tmp_path: Path) -> None:
    story(f"kill {acks} {seed}", tmp_path, acks=acks, idempotent=idempotent)


@pytest.mark.parametrize("seed", range(2))
def test_an_idempotent_producer_finds_each_record_once_and_in_order(seed: int, tmp_path: Path) -> None:
    load, memories = story(f"kill idempotent {seed}", tmp_path, acks=-1, idempotent=True)
    for memory in memories:
        for writer in load.writers:
            if writer.partition == memory.partition:
                mine = [value for value in memory.values if value.startswith(writer.name.encode() + b"-")]
                assert mine == writer.sent_all, "every record once, in the order in which it was sent"


def test_a_real_idempotent_producer_rides_over_kills(tmp_path: Path) -> None:
    """librdkafka repeats by itself what had no answer: every message is delivered, once, in order."""
    chance = random.Random(7)
    values = [b"%d" % n + b"." * chance.randint(0, 300) for n in range(6000)]
    failed: list[object] = []
    with Ottla(tmp_path, settings=SETTINGS) as broker:
        prepare(broker.port, 1, {"segment.bytes": "65536"})
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.size": 4000,
                "reconnect.backoff.max.ms": 100,
                "log_level": 2,
            }
        )

        def report(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        sent = iter(values)
        for part in range(4):
            for value in itertools.islice(sent, len(values) // 4):
                producer.produce(TOPIC, value, partition=0, on_delivery=report)
            producer.poll(chance.uniform(0.005, 0.05))
            if part < 3:
                broker.kill()
                broker.start()
        assert producer.flush(60) == 0
        memory = Memory(0)
        memory.read(broker.port)
    assert failed == []
    assert memory.values == values


def story(name: str, folder: Path, *, acks: int, idempotent: bool) -> tuple[Load, list[Memory]]:
    chance = random.Random(name)
    load = Load(
        [
            Writer(f"w{n}", n % PARTITIONS, random.Random(f"{name} {n}"), acks=acks, idempotent=idempotent)
            for n in range(3)
        ]
    )
    memories = [Memory(partition) for partition in range(PARTITIONS)]
    starts = []
    with Ottla(folder, settings=SETTINGS) as broker:
        prepare(broker.port, PARTITIONS, {"segment.bytes": "65536"})
        for _ in range(KILLS):
            load.start(broker.port)
            load.under_way(chance.randrange(0, 200))
            time.sleep(chance.uniform(0, 0.02))  # the moment of the kill
            broker.kill()
            load.stop()
            broker.start()
            starts.append(broker.start_s)
            for memory in memories:
                # The last stretch is read again: a restart must not have changed what was there.
                start = max(0, len(memory.values) - 500)
                memory.read(broker.port, start)
                check(memory, load.writers, start=start)
        load.start(broker.port)
        load.stop()
        for memory in memories:
            memory.read(broker.port)
            check(memory, load.writers)
        assert broker.stop() == 0
    assert load.acked > 20 * KILLS, "too little was acknowledged for the kills to mean anything"
    starts.sort()
    median_ms, worst_ms = starts[len(starts) // 2] * 1000, starts[-1] * 1000
    print(f"\n{name}: {KILLS} kills, {load.acked} records acknowledged, all there")
    print(f"start after a kill: median {median_ms:.0f} ms, worst {worst_ms:.0f} ms")
    return load, memories
