"""librdkafka as a load generator: the line protocol of Load.java, spoken by confluent-kafka.

Reads one command per line from stdin, `name key=value ...`, and answers with one line of JSON. The broker's CPU time is
read from /proc around the measured time only, not around connecting. Records go one by one through Python, so the
client is the limit for small ones.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.wire import text  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import KafkaError, Message

Options = dict[str, str]
Answer = dict[str, object]
TICK = os.sysconf("SC_CLK_TCK")
SAMPLE_EVERY = 32
LINES = 4096
WAIT_S = 30.0


def cpu_s(options: Options) -> float:
    """User and system time of all threads of the broker."""
    fields = Path(f"/proc/{options['pid']}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def produce(options: Options) -> Answer:
    """Send as many records as the client can for the given time, then wait for the last acknowledgement."""
    size, topic = int(options["size"]), options["topic"]
    values = [text(size, seed) for seed in range(LINES)]
    samples: list[float] = []
    failures: list[KafkaError] = []

    def acknowledged(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)
        else:
            samples.append(message.latency() or 0.0)

    settings: dict[str, object] = {
        "bootstrap.servers": options["bootstrap"],
        "acks": options["acks"],
        "enable.idempotence": options["acks"] == "-1",
        "batch.size": int(options["batch"]),
        "compression.codec": options["codec"],
        "log_level": 0,
    }
    producer = Producer(settings)
    producer.produce(topic, values[0])
    if producer.flush(WAIT_S):
        raise TimeoutError("the first record was not acknowledged")
    before, start, count = cpu_s(options), time.monotonic(), 0
    end = start + float(options["seconds"])
    while time.monotonic() < end:
        for _ in range(SAMPLE_EVERY):
            callback = acknowledged if count % SAMPLE_EVERY == 0 else None
            while True:
                try:
                    producer.produce(topic, values[count % LINES], on_delivery=callback)
                    break
                except BufferError:
                    producer.poll(0.01)
            count += 1
        producer.poll(0)
    if producer.flush(WAIT_S):
        raise TimeoutError("not every record was acknowledged")
    seconds, used = time.monotonic() - start, cpu_s(options) - before
    if failures:
        raise KafkaException(failures[0])
    samples.sort()
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
    tails = {name: samples[int((len(samples) - 1) * share)] * 1e3 for name, share in shares.items()}
    return {"bytes": count * size, "count": count, "seconds": seconds, "cpu_s": used, **tails}


def consume(options: Options) -> Answer:
    """Read all partitions from the beginning, again and again for the given time."""
    topic = options["topic"]
    assigned = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(int(options["partitions"]))]
    settings: dict[str, object] = {
        "bootstrap.servers": options["bootstrap"],
        "group.id": "bench",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    try:
        total = sum(consumer.get_watermark_offsets(each, timeout=WAIT_S)[1] for each in assigned)
        consumer.assign(assigned)
        if not consumer.consume(1, WAIT_S):
            raise TimeoutError("nothing arrived")
        before, start = cpu_s(options), time.monotonic()
        end = start + float(options["seconds"])
        size = count = round_count = 0
        while time.monotonic() < end:
            messages = consumer.consume(1000, 0.1)
            for message in messages:
                if message.error():
                    raise KafkaException(message.error())
                size += len(message.value() or b"")
            count += len(messages)
            round_count += len(messages)
            if round_count >= total - len(assigned):
                consumer.assign(assigned)
                round_count = 0
        return {
            "bytes": size,
            "count": count,
            "seconds": time.monotonic() - start,
            "cpu_s": cpu_s(options) - before,
        }
    finally:
        consumer.close()


COMMANDS: dict[str, Callable[[Options], Answer]] = {"produce": produce, "consume": consume}


def main() -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        name, *words = line.split()
        try:
            answer = COMMANDS[name](dict(word.split("=", 1) for word in words))
        except (KafkaException, TimeoutError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
