"""Single functions of the hot paths, without a socket: python bench/micro.py [TEXT ...]

Each line is one number: the best of nine rounds in microseconds per call (the best, because noise only slows down),
then the median and the spread of the rounds. It is CPU time, so other load on the machine matters little; still,
measure before and after a change on the same machine, in the same minute.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)
sys.path.insert(1, str(ROOT / "src"))

from bench.wire import Connection, batch, fetch_frame, produce_frame  # noqa: E402
from ottla.broker import Broker  # noqa: E402
from ottla.config import load, topic_config  # noqa: E402
from ottla.handlers import gates  # noqa: E402
from ottla.log.append import append as append_to  # noqa: E402
from ottla.net.dispatch import Dispatch  # noqa: E402
from ottla.net.throttling import Throttling  # noqa: E402
from ottla.quota.quotas import Quotas  # noqa: E402
from ottla.quota.rate import Window  # noqa: E402
from ottla.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, header  # noqa: E402
from ottla.records.compress import Codec, compress  # noqa: E402
from ottla.records.native import crc32c  # noqa: E402
from ottla.records.validate import validate  # noqa: E402
from ottla.security.acl import AclEntry, Resource  # noqa: E402
from ottla.security.authorizer import Authorizer  # noqa: E402
from ottla.security.principal import ANONYMOUS  # noqa: E402
from ottla.wire import codec  # noqa: E402
from ottla.wire.access import Operation, Permission, ResourceType  # noqa: E402
from ottla.wire.messages import fetch as fetch_messages  # noqa: E402
from ottla.wire.messages import produce as produce_messages  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.net.counts import Times

ROUNDS = 9
ROUND_S = 0.05
NOW_MS = int(time.time() * 1000)
TOPIC, WIDE = "micro", "wide"
FRAME_HEADER = 4 + 10 + 5 + 1  # length, request header v2 with the client id of bench.wire
ONE, SMALL, LARGE = 1, 16 * 1024, 128 * 1024
LZ4_WIDE = bytes.fromhex("04224d18607073")  # the header of franz-go's frames, whose blocks may have 4 MiB
FILLED = 10_000  # batches in the log, far more than a segment caches the positions of


class Measured(NamedTuple):
    name: str
    call: Callable[[], object]


def measure(call: Callable[[], object]) -> list[float]:
    """Microseconds per call, one number for each round."""
    call()
    count, taken = 1, 0.0
    while taken < ROUND_S:
        count = max(count * 2, int(count * ROUND_S / taken)) if taken else count * 2
        taken = timed(call, count)
    return [timed(call, count) / count * 1e6 for _ in range(ROUNDS)]


def timed(call: Callable[[], object], count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        call()
    return time.process_time() - start


class Sent:
    """Counts each response as sent at once."""

    def append(self, times: Times) -> None:
        times[0].add(times, time.monotonic())


class Client:
    """The parts of a connection that dispatch uses."""

    client_id = "bench"
    client_id_raw = b"bench"
    host = "127.0.0.1"
    listener = "PLAINTEXT"
    dialled = ("127.0.0.1", 9092)
    principal = ANONYMOUS
    arrived = begun = 0.0

    def __init__(self) -> None:
        self.unsent = Sent()


def messages() -> list[Measured]:
    """The wire: what it costs to read a request and to write a response."""
    asked = memoryview(produce_frame(TOPIC, {0: batch(100, SMALL).data}, 1))
    fetched = memoryview(fetch_frame(TOPIC, 0, 0, 1 << 20))
    read_produce = codec.decoder(produce_messages.ProduceRequest, 11)
    read_fetch = codec.decoder(fetch_messages.FetchRequest, 12)
    write_produce = codec.encoder(produce_messages.ProduceResponse, 11)
    write_fetch = codec.encoder(fetch_messages.FetchResponse, 12)
    result = produce_messages.PartitionProduceResponse(index=0, error_code=0, base_offset=7)
    topic = produce_messages.TopicProduceResponse(name=TOPIC, partition_responses=[result])
    produced = produce_messages.ProduceResponse(responses=[topic])
    data = fetch_messages.PartitionData(partition_index=0, error_code=0, high_watermark=9, records=b"")
    answer = fetch_messages.FetchResponse(
        responses=[fetch_messages.FetchableTopicResponse(topic=TOPIC, partitions=[data])]
    )
    return [
        Measured("decode ProduceRequest v11", lambda: read_produce(asked, FRAME_HEADER)),
        Measured("encode ProduceResponse v11", lambda: write_produce(produced)),
        Measured("decode FetchRequest v12", lambda: read_fetch(fetched, FRAME_HEADER)),
        Measured("encode FetchResponse v12", lambda: write_fetch(answer)),
    ]


def validation() -> list[Measured]:
    """Header, checksum, limits: once for each batch."""
    config = topic_config(load({}), {})

    def check(data: memoryview) -> Callable[[], object]:
        return lambda: validate(data, config, base=0, epoch=0, now_ms=NOW_MS, produce_version=11)

    found = [Measured("validate one record", check(memoryview(batch(100, ONE, "none", NOW_MS).data)))]
    for size, record_size in ((SMALL, 100), (SMALL, 1000), (LARGE, 100), (LARGE, 1000)):
        plain = batch(record_size, size, "none", NOW_MS).data
        for one in Codec:
            data = packed(plain, one, compress(one, plain[HEADER_SIZE:]))
            name = f"validate {size >> 10} kB of {record_size} B, {one.name.lower()}"
            found.append(Measured(name, check(memoryview(data))))
        frame = LZ4_WIDE + compress(Codec.LZ4, plain[HEADER_SIZE:])[len(LZ4_WIDE) :]
        name = f"validate {size >> 10} kB of {record_size} B, lz4 that allows 4 MiB"
        found.append(Measured(name, check(memoryview(packed(plain, Codec.LZ4, frame)))))
    return found


def packed(plain: bytes, codec: int, records: bytes) -> bytes:
    """The batch with its records compressed."""
    head = header(plain)._replace(attributes=codec, length=HEADER_SIZE - LOG_OVERHEAD + len(records))
    data = HEADER.pack(*head) + records
    return data[:17] + crc32c(data[21:]).to_bytes(4, "big") + data[21:]


def parts(broker: Broker) -> list[Measured]:
    """The log alone, then whole requests through dispatch, as the connection passes them.

    These parts are private to the broker; a benchmark of internals has to reach in.
    """
    log, dispatch, client = broker._store.logs[TOPIC, 0], broker._dispatch, Client()
    assert dispatch is not None
    small = memoryview(batch(100, SMALL).data)

    def append(data: memoryview) -> Callable[[], object]:
        return lambda: append_to(log, data, epoch=0, now_ms=NOW_MS, produce_version=11)

    def whole(frame: bytes, dispatch: Dispatch = dispatch) -> Callable[[], object]:
        body = memoryview(frame)[4:]
        return lambda: dispatch(client, body)  # type: ignore[arg-type]

    for _ in range(FILLED):
        append_to(log, small, epoch=0, now_ms=NOW_MS, produce_version=11)
    middle = log.end // 2
    one = produce_frame(TOPIC, {0: batch(100, ONE).data}, 1)
    return [
        Measured("append one record", append(memoryview(batch(100, ONE).data))),
        Measured("append 16 kB", append(small)),
        Measured("read 16 kB, by the index", lambda: log.read(middle, SMALL, offset_max=log.end)),
        Measured("read 16 kB, at the end", lambda: log.read(log.end - 1, SMALL, offset_max=log.end)),
        Measured("dispatch Fetch, by the index", whole(fetch_frame(TOPIC, 0, middle, SMALL))),
        Measured("dispatch Produce one record", whole(one)),
        Measured("dispatch Produce, authorized", whole(one, behind_rules(dispatch))),
        Measured("dispatch Produce, others limited", whole(one, beside_quotas(dispatch))),
        Measured("dispatch Produce 16 kB", whole(produce_frame(TOPIC, {0: small.tobytes()}, 1))),
        Measured(
            "dispatch Produce 6 x 16 kB", whole(produce_frame(WIDE, dict.fromkeys(range(6), small.tobytes()), -1))
        ),
    ]


def behind_rules(dispatch: Dispatch) -> Dispatch:
    """The same broker with an authorizer, and an ACL that lets everybody write."""
    gates.load()
    authorizer = Authorizer()
    rule = AclEntry(str(ANONYMOUS), "*", Operation.WRITE, Permission.ALLOW)
    authorizer.put({Resource(ResourceType.TOPIC, "*"): frozenset((rule,))})
    return Dispatch(dispatch._parts, authorizer)


def beside_quotas(dispatch: Dispatch) -> Dispatch:
    """The same broker with a quota for another client."""
    window = Window(11, 1000)
    quotas = Quotas(window, window)
    quotas.limits.change({}, {"clients/other": {"producer_byte_rate": "1000"}})
    limited = Dispatch(dispatch._parts)
    limited.measure(Throttling(quotas, dispatch._parts.clock))
    return limited


def create(port: int) -> None:
    with Connection(port) as connection:
        connection.create_topic(TOPIC)
        connection.create_topic(WIDE, 6)


async def main(words: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-micro-") as folder:
        settings = {"log.dirs": folder, "listeners": "PLAINTEXT://127.0.0.1:0", "log.retention.bytes": "-1"}
        broker = Broker(load(settings))
        await broker.start()
        try:
            await asyncio.to_thread(create, broker.addresses[0][2])
            for each in [*messages(), *validation(), *parts(broker)]:
                if not words or any(word in each.name for word in words):
                    rounds = measure(each.call)
                    middle = statistics.median(rounds)
                    spread = (max(rounds) - min(rounds)) / 2 / middle
                    print(f"{each.name:32} {min(rounds):8.2f} µs   median {middle:8.2f} ±{spread:.0%}", flush=True)
        finally:
            await broker.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
