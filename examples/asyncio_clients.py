"""A broker, a producer and a consumer in one asyncio program, with aiokafka. Nothing else needs to run.

    pip install ottla aiokafka
    python asyncio_clients.py

Prints:

    21.5 degrees in the kitchen
    19.0 degrees in the hall
"""

import asyncio
import json

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

import ottla

READINGS = {"kitchen": 21.5, "hall": 19.0}


async def main() -> None:
    async with ottla.Broker() as broker:  # a free port; keeps nothing
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            for room, degrees in READINGS.items():
                await producer.send_and_wait("readings", json.dumps(degrees).encode(), key=room.encode())
        async with AIOKafkaConsumer(
            "readings", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            for _ in READINGS:
                record = await consumer.getone()
                print(f"{json.loads(record.value)} degrees in the {record.key.decode()}")


if __name__ == "__main__":
    asyncio.run(main())
