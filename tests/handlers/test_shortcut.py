"""The fast path of Produce and the full path: the same responses and the same logs for every request.

Two brokers get the same frames at the same time. One of them has no fast path. Everything runs three times: on brokers
with nothing in front of the handler, with an authorizer, and with quotas.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest
from log.making import NOW_MS, FaultyDisk, StillClock
from records.malformed import all_of_them

from ottla.broker import Broker
from ottla.cluster.plans import NewTopic
from ottla.config import load
from ottla.errors import ErrorCode, Hangup
from ottla.handlers import shortcut as shortcut_module
from ottla.handlers.shortcut import PACKED_SIZE_MAX, SIZE_MAX, VERSION_MIN, Shortcut
from ottla.log import planned_write
from ottla.net.answer import Deferred
from ottla.records import batch, native
from ottla.records.batch import Record
from ottla.records.compress import Codec
from ottla.replica.leader import Leader
from ottla.replica.partition import Site
from ottla.security.acl import AclEntry, Resource
from ottla.security.principal import ANONYMOUS
from ottla.wire.access import Operation, Permission, ResourceType
from ottla.wire.codec import decode, encode
from ottla.wire.frame import request_header
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from ottla.log.log import Log
    from ottla.net.dispatch import Dispatch

NEWEST = 13
FOLDERS = b"/short", b"/whole"  # of the two brokers, as they appear in disk errors
TOPICS = [
    NewTopic("plain", 3, 1),
    NewTopic("other", 1, 1),
    NewTopic("keyed", 1, 1, configs={"cleanup.policy": "compact"}),
    NewTopic("stamped", 1, 1, configs={"message.timestamp.type": "LogAppendTime"}),
    NewTopic("packed", 1, 1, configs={"compression.type": "gzip"}),
    NewTopic("strict", 1, 1, configs={"max.message.bytes": "300", "message.timestamp.before.max.ms": "1000"}),
    NewTopic("flushed", 1, 1, configs={"flush.messages": "1"}),
    NewTopic("small", 1, 1, configs={"segment.bytes": "1048576"}),
    NewTopic("closed", 1, 1),
]
SHORT = native.produce_reader() is not None  # without the native part both brokers take the full path


SETUP = {"kind": "open"}
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
WRITE = AclEntry(str(ANONYMOUS), "*", Operation.WRITE, Permission.ALLOW)
EVERYWHERE, CLOSED = Resource(ResourceType.TOPIC, "*"), Resource(ResourceType.TOPIC, "closed")


@pytest.fixture(autouse=True, params=["open", "authorized", "limited"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What runs in front of the handler."""
    monkeypatch.setitem(SETUP, "kind", request.param)
    return str(request.param)


class Peer:
    host, listener, dialled = "127.0.0.1", "PLAINTEXT", ("127.0.0.1", 9092)
    principal = ANONYMOUS
    arrived = begun = 0.0

    def __init__(self) -> None:
        self.unsent: list[Any] = []

    def mute(self, seconds: float, cause: Any) -> None:
        """Called when the connection is throttled."""


def content(part: Any) -> bytes:
    """The content of a part of a response: bytes, or a region of a file."""
    return part if isinstance(part, bytes) else bytes(part.read())


class Side(NamedTuple):
    """One of the two brokers."""

    broker: Broker
    dispatch: Dispatch
    disk: FaultyDisk

    async def ask(self, frame: bytes) -> bytes | str | None:
        """The response to a frame, or why the connection was closed. The frame's bytes are only borrowed."""
        lent = bytearray(frame)
        try:
            answer = self.dispatch(cast("Any", Peer()), memoryview(lent))
            lent[:] = bytes(len(lent))
            if isinstance(answer, Deferred):
                await asyncio.wait([answer.future])
                answer = answer.encode(answer.future)
        except Hangup as error:
            return str(error)
        return None if answer is None else b"".join(map(content, answer)).replace(*FOLDERS)

    async def ask_several(self, frames: list[bytes]) -> tuple[list[bytes], list[int]]:
        """The responses to frames that arrived together, and how many of them were handled at once each time."""
        answers: list[bytes] = []
        runs = []
        while len(answers) < len(frames):
            rest = [memoryview(bytearray(frame)) for frame in frames[len(answers) :]]
            found = self.dispatch.gather(cast("Any", Peer()), rest) if len(rest) > 1 else []
            if found:
                answers += [b"".join(cast("Any", one)) for one in found]
                runs.append(len(found))
            else:
                answers.append(cast("bytes", await self.ask(frames[len(answers)])))
        return [answer.replace(*FOLDERS) for answer in answers], runs

    def topic_id(self, name: str) -> bytes:
        found = self.dispatch._parts.metadata.image.topics.get(name)
        return bytes(16) if found is None else found.id

    def limit(self, client_id: str, rates: dict[str, str]) -> None:
        """Set the quotas of a client id."""
        self.broker._enforcement.follow(self.dispatch, {}, {f"clients/{client_id}": rates})

    async def change(self, resource: Resource, *entries: AclEntry) -> None:
        """Set the ACLs of a resource."""
        store = self.broker._acl_store
        assert store is not None
        await store._change(resource, lambda _: frozenset(entries))

    def logs(self) -> dict[tuple[str, int], tuple[bytes, int, int]]:
        return {
            key: (
                b"".join(bytes(one.slice(0, one.size).read()) for one in log.segments if one.size),
                log.start,
                log.end,
            )
            for key, log in self.broker._store.logs.items()
        }


@asynccontextmanager
async def side(folder: Path, *, short: bool) -> AsyncIterator[Side]:
    disk = FaultyDisk()
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder), "ottla.metrics.listener": "off"}
    if SETUP["kind"] == "authorized":
        settings |= AUTHORIZER
    broker = Broker(load(settings), clock=StillClock(), disk=disk)
    await broker.start()
    try:
        dispatch = broker._dispatch
        assert dispatch is not None
        if not short:
            dispatch._find_shortcut = lambda route: None  # type: ignore[method-assign]
        controller = cast("Any", dispatch._parts.controller)
        controller._random_bytes = random.Random(1).randbytes  # the same topic ids in both
        await controller.create_topics(TOPICS)
        made = Side(broker, dispatch, disk)
        if SETUP["kind"] == "authorized":
            await made.change(EVERYWHERE, WRITE)
            await made.change(CLOSED, WRITE._replace(permission=Permission.DENY))
        if SETUP["kind"] == "limited":
            made.limit("limited", {"producer_byte_rate": "10"})
        yield made
    finally:
        disk.space_left = None
        await broker.stop()


class Pair(NamedTuple):
    short: Side
    general: Side
    taken: list[bool]  # for each request: whether it took the fast path

    async def ask(
        self,
        request: ProduceRequest,
        version: int,
        change: Callable[[bytes], bytes] = bytes,
        client_id: str = "client",
    ) -> Any:
        """The response of both, which must be equal."""
        for topic in request.topic_data:
            topic.topic_id = self.short.topic_id(topic.name)
        frame = change(request_header(0, version, 77, client_id) + encode(request, version))
        answers = [await one.ask(frame) for one in (self.short, self.general)]
        assert answers[0] == answers[1]
        return answers[0]

    async def tell(self, request: ProduceRequest, version: int) -> list[tuple[int, int]]:
        """Error and base offset of each partition."""
        response = read(await self.ask(request, version), version)
        return [(one.error_code, one.base_offset) for topic in response.responses for one in topic.partition_responses]

    async def ask_several(self, requests: list[ProduceRequest], version: int = 11) -> list[int]:
        """How many were handled at once each time. The responses must equal those to single requests."""
        frames = []
        for number, one in enumerate(requests):
            for topic in one.topic_data:
                topic.topic_id = self.short.topic_id(topic.name)
            frames.append(request_header(0, version, number, "client") + encode(one, version))
        answers, runs = await self.short.ask_several(frames)
        assert answers == [await self.general.ask(frame) for frame in frames]
        return runs


def read(answer: bytes, version: int) -> ProduceResponse:
    return decode(ProduceResponse, version, answer[9 if version >= 9 else 8 :])


def story(folder: Path, tell: Callable[[Pair], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario on both brokers; at the end they must have the same logs."""

    async def whole() -> None:
        async with side(folder / "short", short=True) as short, side(folder / "whole", short=False) as general:
            pair = Pair(short, general, [])
            count(pair)
            await tell(pair)
            assert short.logs() == general.logs()

    asyncio.run(whole())


def count(pair: Pair) -> None:
    """Record for each request to the first broker whether it took the fast path."""
    take = pair.short.dispatch._take_shortcut

    def taking(route: Any, *rest: Any) -> Any:
        shortcut = route.shortcut

        def noting(*given: Any) -> Any:
            answer = shortcut(*given)
            pair.taken.append(isinstance(answer, (bytes, list)))
            return answer

        route.shortcut = noting
        try:
            return take(route, *rest)
        finally:
            route.shortcut = shortcut

    pair.short.dispatch._take_shortcut = taking  # type: ignore[method-assign]


def records(count: int = 1, *, key: bytes | None = b"k", size: int = 10, **more: Any) -> bytes:
    return batch.build([Record(at, NOW_MS, key, b"v" * size, ()) for at in range(count)], **more)


def request(*data: tuple[str, int, bytes | None], acks: int = 1, name: str | None = None) -> ProduceRequest:
    """Partitions grouped by topic; a topic appears once for each consecutive run of its partitions."""
    topics: list[TopicProduceData] = []
    for topic, index, one in data:
        if not topics or topics[-1].name != topic:
            topics.append(TopicProduceData(name=topic, partition_data=[]))
        view = None if one is None else memoryview(one)
        topics[-1].partition_data.append(PartitionProduceData(index=index, records=view))
    return ProduceRequest(transactional_id=name, acks=acks, timeout_ms=1000, topic_data=topics)


def test_usual_requests_of_every_version_take_it(tmp_path: Path) -> None:
    async def tell(pair: Pair) -> None:
        wanted = [
            ("plain", 0, records()),
            ("plain", 2, records(3)),
            ("other", 0, records(2, size=900)),
            ("small", 0, records()),
        ]
        for version in range(3, NEWEST + 1):
            for acks in (1, -1):
                offset = (version - 3) * 2 + (acks == -1)
                found = await pair.tell(request(*wanted, acks=acks), version)
                assert found == [(0, offset), (0, 3 * offset), (0, 2 * offset), (0, offset)]
        # The first request of a version creates its route.
        assert pair.taken == [True] * (NEWEST - VERSION_MIN + 1) * SHORT
        for codec in Codec:
            await pair.tell(request(("plain", 1, records(9, codec=codec))), 9)
        assert all(pair.taken), "compressed ones as well"

    story(tmp_path, tell)


def test_idempotent_batches_their_retries_and_their_errors(tmp_path: Path) -> None:
    async def tell(pair: Pair) -> None:
        sequences = [0, 1, 1, 5, 2, 0, 3]
        found = []
        for sequence in sequences:
            data = records(producer_id=9, producer_epoch=0, base_sequence=sequence)
            found += await pair.tell(request(("other", 0, records()), ("plain", 0, data)), 11)
        assert [code for code, _ in found[1::2]] == [0, 0, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0, 0, 0]
        assert [base for _, base in found[::2]] == list(range(len(sequences)))

    story(tmp_path, tell)


def test_what_is_not_usual_goes_the_general_way_from_there_on(tmp_path: Path) -> None:
    good = records()
    unusual = [
        ("plain", 7, good), ("nowhere", 0, good), ("plain", 0, None), ("plain", 0, b""), ("closed", 0, good),
        ("keyed", 0, records(key=None)),
        ("stamped", 0, good), ("packed", 0, good), ("strict", 0, records(size=400)), ("flushed", 0, good),
        ("strict", 0, batch.build([Record(0, NOW_MS - 5000, b"k", b"v", ())])),
        ("plain", 0, batch.build([Record(0, NOW_MS + 10**9, b"k", b"v", ())])),
        ("plain", 0, good[:-1] + b"?"), ("plain", 0, good[:40]), ("plain", 0, good + good),
        ("plain", 0, records(producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)),
        ("plain", 0, records(size=PACKED_SIZE_MAX * 2, codec=Codec.LZ4)), ("__consumer_offsets", 0, good),
    ]  # fmt: skip

    async def tell(pair: Pair) -> None:
        for one in unusual:
            for acks in (1, -1, 0, 2):
                for version in (5, 7, 8, 9, 12, NEWEST):
                    await pair.ask(request(one, acks=acks), version)
                    await pair.ask(request(("plain", 1, good), one, ("other", 0, good), acks=acks), version)
        await pair.ask(request(("plain", 0, good), name="transaction"), 11)
        await pair.ask(request(*[("plain", at % 3, good) for at in range(200)]), 11)
        await pair.ask(request(*[("plain", at % 3, good) for at in range(1100)]), 11)
        await pair.ask(request(), 11)

    story(tmp_path, tell)


def test_malformed_batches(tmp_path: Path) -> None:
    async def tell(pair: Pair) -> None:
        for data in all_of_them(NOW_MS).values():
            for version in (6, 9):
                await pair.ask(request(("plain", 0, records()), ("plain", 1, data), ("plain", 2, records())), version)
                await pair.ask(request(("keyed", 0, data)), version)

    story(tmp_path, tell)


def test_hostile_frames(tmp_path: Path) -> None:
    """Truncated, lengthened, with changed bytes, and with wrong counts and lengths."""
    chance = random.Random(15)
    wanted = request(("plain", 0, records()), ("plain", 1, records(2)), ("other", 0, records()))

    def change(frame: bytes, seed: int) -> bytes:
        chance = random.Random(seed)
        made = bytearray(frame)
        kind = chance.randrange(5)
        if kind == 0:
            return bytes(made[: chance.randrange(4, len(made))])
        if kind == 1:
            return bytes(made) + chance.randbytes(chance.randrange(1, 9))
        at = chance.randrange(4, len(made) if kind < 4 else 70)
        if kind == 2:
            made[at] ^= 1 << chance.randrange(8)
        elif kind == 3:
            made[at : at + 4] = chance.choice([b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", bytes(4)])
        else:
            made[at:at] = chance.choice([b"\x80", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80", b"\x01\x00\x00"])
        return bytes(made)

    async def tell(pair: Pair) -> None:
        for version in range(VERSION_MIN, NEWEST + 1):
            await pair.ask(wanted, version)
            for _ in range(150):
                seed = chance.random()
                await pair.ask(wanted, version, lambda frame: change(frame, hash(seed)))  # noqa: B023

    story(tmp_path, tell)


def test_a_failed_write_fails_its_partition_and_no_other(tmp_path: Path) -> None:
    async def tell(pair: Pair) -> None:
        one = records(size=100)
        wanted = request(("plain", 0, one), ("plain", 1, one), ("plain", 2, one))
        await pair.tell(wanted, 11)
        for room in range(0, 3 * len(one) + 1, 50):
            for each in (pair.short, pair.general):
                each.disk.space_left = room
            codes = [code for code, _ in await pair.tell(wanted, 11)]
            assert [code == 0 for code in codes] == sorted([code == 0 for code in codes], reverse=True)
            assert codes.count(0) == room // len(one)

    story(tmp_path, tell)


@pytest.mark.skipif(not SHORT, reason="without the native part there is no shortcut")
@pytest.mark.parametrize("real", [True, False], ids=["native", "singly"])
def test_batches_for_several_partitions_are_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, real: bool
) -> None:
    counts_written: list[int] = []

    def noting(disk: Any, frame: memoryview, writes: list[Any]) -> Any:
        counts_written.append(len(writes))
        return planned_write.write_planned(disk, frame, writes)

    monkeypatch.setattr(shortcut_module, "write_planned", noting)

    async def tell(pair: Pair) -> None:
        if real:  # native code writes only in place of this function
            monkeypatch.setattr(pair.short.disk, "writev", os.pwritev)
        plain = [("plain", at, records(at + 1, size=70)) for at in range(3)]
        others = [("other", 0, records()), ("keyed", 0, records()), ("small", 0, records())]
        for _ in range(2):  # from then on it is known when their segments will be rolled
            await pair.tell(request(*plain, *others), 11)
        counts_written.clear()
        assert await pair.tell(request(*plain, *others), 11) == [(0, 2), (0, 4), (0, 6), (0, 2), (0, 2), (0, 2)]
        assert counts_written == [4], "other terms end it, and so does the end of the request"
        assert await pair.tell(request(*plain, *plain), 11) == [(0, 3), (0, 6), (0, 9), (0, 4), (0, 8), (0, 12)]
        assert counts_written == [4, 3, 3], "a partition is in it once"
        for number in range(3):
            await pair.tell(request(*[("plain", at, numbered(number)) for at in range(3)], acks=-1), 11)
        assert counts_written == [4, 3, 3, 3, 3, 3]
        await pair.tell(request(*[("plain", at, numbered(2)) for at in range(3)], acks=-1), 11)  # retries
        await pair.tell(request(*plain[:2], ("plain", 2, records(codec=Codec.GZIP))), 11)
        assert counts_written == [4, 3, 3, 3, 3, 3, 3]
        for codec in Codec:
            await pair.tell(request(*[("plain", at, records(at + 1, size=900, codec=codec)) for at in range(3)]), 11)
            large = [("plain", at, records(40, size=900 + at, codec=codec)) for at in range(3)]
            await pair.tell(request(*large), 11)
            broken = large[1][2][:-3] + b"???"
            await pair.tell(request(large[0], ("plain", 1, broken), large[2]), 11)
        await pair.tell(request(*plain[:2], ("plain", 2, plain[2][2][:-1] + b"?")), 11)

    story(tmp_path, tell)


@pytest.mark.skipif(not SHORT, reason="without the native part there is no shortcut")
def test_batches_that_need_more_than_a_write_are_checked_only_a_few_times(tmp_path: Path) -> None:
    """Such as the first two of each partition, and the next one after a restart. Checking them may take long."""
    count = 200
    wanted = request(*[("many", at, records(codec=Codec.GZIP)) for at in range(count)])

    async def tell(pair: Pair) -> None:
        for one in (pair.short, pair.general):
            await cast("Any", one.dispatch._parts.controller).create_topics([NewTopic("many", count, 1)])
        await pair.tell(wanted, 11)  # this creates the route
        shortcut = pair.short.dispatch._routes[11].shortcut
        check, check_each, checked = shortcut._check, shortcut._check_each, 0

        def counting(*given: Any) -> Any:
            nonlocal checked
            checked += 1
            return check(*given)

        def counting_each(*given: Any) -> Any:
            nonlocal checked
            found = check_each(*given)
            checked += len(found)
            return found

        shortcut._check, shortcut._check_each = counting, counting_each
        await pair.tell(wanted, 11)
        assert count <= checked <= 4 * count
        checked = 0
        await pair.tell(wanted, 11)
        assert checked == count, "now they only need to be written"

    story(tmp_path, tell)


@pytest.mark.skipif(not SHORT, reason="without the native part there is no shortcut")
def test_a_write_that_fails_on_a_real_disk_fails_one_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared with single writes to the same kind of file: a device without room."""

    async def tell(pair: Pair) -> None:
        wanted = request(*[("plain", at, records(size=100)) for at in range(3)])
        for _ in range(2):
            await pair.tell(wanted, 11)
        full = os.open("/dev/full", os.O_RDWR)
        files = []
        for each in (pair.short, pair.general):
            monkeypatch.setattr(each.disk, "writev", os.pwritev)
            monkeypatch.setattr(each.disk, "cut", lambda fd, size: None)
            segment = each.broker._store.logs["plain", 1].active
            assert segment.opened is not None
            files.append((segment.opened, segment.opened.fd))
            segment.opened.fd = full
        codes = [code for code, _ in await pair.tell(wanted, 11)]
        assert codes == [0, ErrorCode.KAFKA_STORAGE_ERROR, 0]
        for file, fd in files:
            file.fd = fd
        os.close(full)
        assert [code for code, _ in await pair.tell(wanted, 11)] == [0, 0, 0]

    story(tmp_path, tell)


def whole_file(log: Log) -> bytes:
    """The file of the active segment, with what may follow its last batch."""
    with open(log.active.stem + ".log", "rb") as file:
        return file.read()


@pytest.mark.skipif(not SHORT, reason="without the native part there is no shortcut")
@pytest.mark.parametrize("ahead", [False, True], ids=["as it comes", "the second thread was fast"])
def test_what_two_threads_wrote_after_a_failure_is_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ahead: bool
) -> None:
    """The write of one of six large batches fails. Those after it may be in their files before they are appended."""
    count = 6
    wanted = request(*[("wide", at, records(size=48 << 10)) for at in range(count)])
    dropped: list[str] = []

    def write_more(disk: Any, frame: memoryview, writes: list[Any]) -> Any:
        done, result = planned_write.write_planned(disk, frame, writes)
        if ahead:
            planned_write.write_singly(disk, frame, writes[done + 1 :])
        return done, result

    def noting(log: Any, write: Any) -> None:
        planned_write.drop_write(log, write)
        assert os.path.getsize(write[7].path) == log.active.size
        dropped.append(f"{log.topic}-{log.index}")

    monkeypatch.setattr(shortcut_module, "write_planned", write_more)
    monkeypatch.setattr(shortcut_module, "drop_write", noting)

    async def tell(pair: Pair) -> None:
        full = os.open("/dev/full", os.O_RDWR)
        for one in (pair.short, pair.general):
            await cast("Any", one.dispatch._parts.controller).create_topics([NewTopic("wide", count, 1)])
            monkeypatch.setattr(one.disk, "writev", os.pwritev)  # native code writes only in place of this function
            monkeypatch.setattr(one.disk, "cut", lambda fd, size: fd == full or os.ftruncate(fd, size))
        ends = [0] * count
        for fails in (None, None, *range(count), None):
            files = []
            for one in (pair.short, pair.general) if fails is not None else ():
                file = one.broker._store.logs["wide", fails].active.opened
                assert file is not None
                files.append((file, file.fd))
                file.fd = full
            dropped.clear()
            found = await pair.tell(wanted, 11)
            for file, fd in files:
                file.fd = fd
            failed = int(ErrorCode.KAFKA_STORAGE_ERROR), -1
            assert found == [failed if at == fails else (0, ends[at]) for at in range(count)]
            assert dropped == [f"wide-{at}" for at in range(count if fails is None else fails + 1, count)]
            ends = [end + (at != fails) for at, end in enumerate(ends)]
            for one in (pair.short, pair.general):
                for at in range(count):
                    log = one.broker._store.logs["wide", at]
                    whole = whole_file(log)
                    assert [entry.base_offset for entry in batch.entries(whole)] == list(range(ends[at]))
                    assert len(whole) == log.size
        os.close(full)

    story(tmp_path, tell)


def test_large_requests_are_not_for_it(tmp_path: Path) -> None:
    async def tell(pair: Pair) -> None:
        part = records(size=SIZE_MAX // 3)
        wanted = request(("plain", 0, part), ("plain", 1, part), ("plain", 2, part), ("other", 0, part))
        await pair.tell(wanted, 11)
        await pair.tell(wanted, 11)
        assert pair.taken == [False] * SHORT

    story(tmp_path, tell)


class TickingClock(StillClock):
    """A second passes at every reading."""

    seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += 1.0
        return self.seconds


def test_a_request_that_takes_long_goes_on_in_slices(tmp_path: Path) -> None:
    async def tell(pair: Pair) -> None:
        good = records()
        many = [("plain", at % 3, good) for at in range(100)]
        await pair.tell(request(*many), 11)
        if SHORT:
            pair.short.dispatch._routes[11].shortcut._clock = TickingClock()
        assert await pair.tell(request(*many), 11) == [
            (0, 34 * (at % 3 == 0) + 33 * (at % 3 > 0) + at // 3) for at in range(100)
        ]
        for unusual in (
            ("nowhere", 0, good), ("plain", 0, good[:-1] + b"?"), ("flushed", 0, good), ("packed", 0, good),
            ("plain", 0, numbered(0)),
        ):  # fmt: skip
            for acks in (1, -1):
                await pair.tell(request(*many[:40], unusual, *many[:40], acks=acks), 11)
        for room in (0, 20 * len(good), 50 * len(good) + 1):
            for each in (pair.short, pair.general):
                each.disk.space_left = room
            codes = [code for code, _ in await pair.tell(request(*many), 11)]
            assert codes.count(0) == room // len(good)
        assert not any(pair.taken)

    story(tmp_path, tell)


@pytest.mark.skipif(not SHORT, reason="without the native part there is no shortcut")
def test_the_clock_is_checked_when_much_was_decompressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small batch may become megabytes. A request that is out of time is not checked to its end."""

    async def tell(pair: Pair) -> None:
        small, large = (records(50, size=size, codec=Codec.GZIP) for size in (200, 50_000))
        await pair.tell(request(*[("plain", at, small) for at in range(3)]), 11)
        shortcut = pair.short.dispatch._routes[11].shortcut
        checked, check, slices, append_some = [], shortcut._check, list[int](), Shortcut._append_some

        def count_slice(self: Shortcut, run: Any) -> bool:
            before, ended = len(run.done), append_some(self, run)
            slices.append(len(run.done) - before)
            return ended

        monkeypatch.setattr(Shortcut, "_append_some", count_slice)
        shortcut._check = lambda *given: (checked.append(1), check(*given))[1]
        for one in (small, large):
            many = request(*[("plain", at % 3, one) for at in range(12)])
            await pair.tell(many, 11)
            shortcut._clock = TickingClock()
            slices.clear()
            checked.clear()
            await pair.tell(many, 11)
            if one is small:
                assert slices == [3, 3, 3, 3], "a partition at a time"
            assert sum(slices) == 12
            assert max(slices) <= (3 if one is small else 2), "2.5 MB in each: two threads check one each"
            checked.clear()
            assert await pair.ask_several([many, many]) == []
            # The first request was given up after one batch, then each went by itself. Their last batch may be alone.
            assert len(checked) in ((1,) if one is small else (1, 2, 3))

    story(tmp_path, tell)


@pytest.mark.skipif(not SHORT, reason="without the native part there is no shortcut")
def test_who_loses_the_lead_between_two_slices_acknowledges_nothing(tmp_path: Path) -> None:
    """Records appended before that wait for replicas that no longer fetch from this broker."""

    async def tell(pair: Pair) -> None:
        good, peer = records(), cast("Any", Peer())
        wanted = request(*[("plain", 0, good)] * 20, *[("other", 0, good)] * 20, acks=-1)
        parts = pair.short.dispatch._parts
        await pair.short.ask(request_header(0, 11, 1, "client") + encode(request(("plain", 0, good)), 11))
        shortcut = pair.short.dispatch._routes[11].shortcut
        shortcut._clock = TickingClock()
        partition = parts.replicas.require_led("plain", 0)
        for turns in (0, 1):
            end = partition.log.end
            followers = Leader(
                1, replicas=(1, 99), isr=(1, 99), epoch=partition.epoch, version=0, end=end, high=end, now_ms=0,
                lag_ms=10**6, epoch_of=lambda _: -1,
            )  # fmt: skip
            partition.lead(partition.epoch + 1, followers, Site(parts.clock, lambda _: None))
            frame = request_header(0, 11, 2, "client") + encode(wanted, 11)
            steps = shortcut(peer, memoryview(frame)).response
            for _ in range(turns):
                next(steps)
            partition.follow(partition.epoch + 1, 99)
            ends: list[Any] = []
            while not ends:
                try:
                    next(steps)
                except StopIteration as end_of_steps:
                    ends.append(end_of_steps.value)
            response = await ends[0] if asyncio.isfuture(ends[0]) else ends[0]
            plain, other = response.responses
            assert {one.error_code for one in plain.partition_responses} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
            assert {one.error_code for one in other.partition_responses} == {ErrorCode.NONE}

    async def whole() -> None:
        async with side(tmp_path / "short", short=True) as short:
            await tell(Pair(short, short, []))

    asyncio.run(whole())


def test_a_fault_on_purpose_closes_it(tmp_path: Path) -> None:
    async def tell(pair: Pair) -> None:
        wanted = request(("plain", 0, records()))
        await pair.tell(wanted, 11)
        seen = []

        def around(handler: Callable[..., Any]) -> Callable[..., Any]:
            def noting(*given: Any) -> Any:
                seen.append(given)
                return handler(*given)

            return noting

        pair.short.dispatch.intercept(0, around)
        await pair.tell(wanted, 11)
        assert (len(seen), pair.taken) == (1, [])
        pair.short.dispatch.intercept(0, None)
        await pair.tell(wanted, 11)
        assert (len(seen), pair.taken) == (1, [True] * SHORT)

    story(tmp_path, tell)


def numbered(sequence: int, producer_id: int = 9, epoch: int = 0, count: int = 1) -> bytes:
    return records(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def test_requests_that_came_together_are_written_at_once(tmp_path: Path) -> None:
    async def tell(pair: Pair) -> None:
        one = request(("plain", 0, records()))
        await pair.ask(one, 11)
        await pair.ask(one, 11)  # the roll of its segment is decided
        writes = count_writes(pair.short.disk)
        assert await pair.ask_several([one] * 20) == [20] * SHORT
        assert len(writes) == (1 if SHORT else 20)
        both = [request(("plain", 0, numbered(at, count=2)), acks=-1) for at in range(0, 10, 2)]
        assert await pair.ask_several(both) == [5] * SHORT
        writes.clear()
        wide = request(
            ("plain", 1, records()), ("other", 0, records()), ("plain", 0, records()), ("plain", 1, records())
        )
        await pair.ask(wide, 11)
        await pair.ask(wide, 11)
        writes.clear()
        assert await pair.ask_several([one, wide, wide, one, request(("plain", 1, records()))]) == [5] * SHORT
        assert len(writes) == (3 if SHORT else 11), "one for each partition"
        stranger = request(("plain", 0, records()), ("nowhere", 0, records()))
        assert await pair.ask_several([one, wide, stranger, wide, one]) == [2, 2] * SHORT

    story(tmp_path, tell)


def test_requests_for_several_partitions_that_came_together(tmp_path: Path) -> None:
    """With all kinds of content: rolled segments, retries, gaps, and batches that would be refused one by one."""
    chance = random.Random(21)
    places = [("plain", 0), ("plain", 1), ("plain", 2), ("other", 0), ("small", 0), ("keyed", 0), ("flushed", 0)]

    async def tell(pair: Pair) -> None:
        together = 0
        for _ in range(150):
            first = chance.randrange(4)
            run = []
            for at in range(chance.randrange(2, 9)):
                some = chance.choices(places, weights=[9, 9, 9, 9, 9, 3, 1], k=chance.randrange(1, 5))
                run.append(request(*[(*place, chance.choice([
                    numbered(first + at), numbered(at, producer_id=10), records(size=40_000), records(3), records(),
                    records(key=None),
                ])) for place in some]))  # fmt: skip
            together += sum(await pair.ask_several(run, chance.choice([7, 11, 13])))
        assert together > 200 or not SHORT

    story(tmp_path, tell)


def test_a_failed_write_of_several_fails_one_partition(tmp_path: Path) -> None:
    async def tell(pair: Pair) -> None:
        one = records(size=100)
        wide = request(("plain", 0, one), ("plain", 1, one), ("plain", 2, one))
        frame = request_header(0, 11, 1, "client") + encode(wide, 11)
        await pair.ask(wide, 11)
        await pair.ask(wide, 11)
        logs = [pair.short.broker._store.logs["plain", index] for index in range(3)]
        for room in (0, 3 * len(one) - 1, 3 * len(one), 6 * len(one) + 5):
            ends = [log.end for log in logs]
            pair.short.disk.space_left = room
            answers, runs = await pair.short.ask_several([frame] * 3)
            pair.short.disk.space_left = None
            found = [decode(ProduceResponse, 11, answer[9:]).responses[0].partition_responses for answer in answers]
            done = room // (3 * len(one))
            if SHORT:
                assert runs == [3]
                failed = ErrorCode.KAFKA_STORAGE_ERROR
                assert [[part.error_code for part in parts] for parts in found] == [
                    [0] * done + [failed] * (3 - done)
                ] * 3
                assert [log.end - end for log, end in zip(logs, ends, strict=True)] == [3] * done + [0] * (3 - done)
                bases = [[part.base_offset for part in parts[:done]] for parts in found]
                assert bases == [[end + at for end in ends[:done]] for at in range(3)]
        for index, log in enumerate(logs):
            while pair.general.broker._store.logs["plain", index].end < log.end:
                await pair.general.ask(request_header(0, 11, 1, "client") + encode(request(("plain", index, one)), 11))

    story(tmp_path, tell)


def test_sequences_that_are_not_in_order_get_the_answers_that_they_get_one_by_one(tmp_path: Path) -> None:
    chance = random.Random(7)

    async def tell(pair: Pair) -> None:
        for _ in range(150):
            first = chance.randrange(6)
            run = [
                request(("plain", chance.choice([0, 0, 0, 1]), chance.choice([
                    numbered(first + at), numbered(first + at), numbered(first + at), numbered(at),
                    numbered(0, epoch=1),
                    numbered(at, producer_id=10), records(), records(key=None, size=300), records()[:-1] + b"?",
                ])))
                for at in range(chance.randrange(1, 9))
            ]  # fmt: skip
            await pair.ask_several(run, chance.choice([7, 11, 13]))
        assert any(pair.short.broker._store.logs["plain", 0].producers.last_batches())

    story(tmp_path, tell)


def test_a_run_ends_where_the_segment_does(tmp_path: Path) -> None:
    async def tell(pair: Pair) -> None:
        one = request(("small", 0, records(size=60_000)))
        for _ in range(8):
            await pair.ask_several([one] * 9)
        assert len(pair.short.broker._store.logs["small", 0].segments) > 3

    story(tmp_path, tell)


def test_a_failed_write_fails_those_in_it_and_no_others(tmp_path: Path) -> None:
    async def tell(pair: Pair) -> None:
        one = request(("plain", 0, records(size=100)))
        size = len(records(size=100))
        await pair.ask(one, 11)
        await pair.ask(one, 11)
        frame = request_header(0, 11, 1, "client") + encode(one, 11)
        log = pair.short.broker._store.logs["plain", 0]
        for room in (0, size - 1, 3 * size + 7, 5 * size):
            end, length = log.end, log.size
            pair.short.disk.space_left = room
            answers, runs = await pair.short.ask_several([frame] * 5)
            pair.short.disk.space_left = None
            codes = [decode(ProduceResponse, 11, answer[9:]).responses[0].partition_responses[0] for answer in answers]
            done = 5 if room == 5 * size else 0
            if SHORT:
                assert runs == [5]
                assert [one.error_code for one in codes] == [0 if done else ErrorCode.KAFKA_STORAGE_ERROR] * 5
                assert (log.end - end, log.size - length) == (done, done * size)
            offset = log.end
            answers, _ = await pair.short.ask_several([frame] * 2)
            bases = [decode(ProduceResponse, 11, one[9:]).responses[0].partition_responses[0] for one in answers]
            assert [one.base_offset for one in bases] == [offset, offset + 1]
        while pair.general.broker._store.logs["plain", 0].end < log.end:
            await pair.general.ask(frame)

    story(tmp_path, tell)


def test_who_may_not_write_is_refused_and_only_they(tmp_path: Path, kind: str) -> None:
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED if kind == "authorized" else ErrorCode.NONE
    usual = kind != "authorized"

    async def tell(pair: Pair) -> None:
        one, closed = request(("plain", 0, records())), request(("closed", 0, records()))
        both = request(("plain", 1, records()), ("closed", 0, records()), ("other", 0, records()))
        for version in (9, NEWEST):
            await pair.ask(one, version)
            pair.taken.clear()
            assert [code for code, _ in await pair.tell(closed, version)] == [refused]
            assert sorted(code for code, _ in await pair.tell(both, version)) == [0, 0, refused]
            await pair.ask_several([one, one, closed, one, one], version)
            assert [code for code, _ in await pair.tell(one, version)] == [0]
            assert set(pair.taken) == ({True} if usual else {True, False}) or not SHORT

    story(tmp_path, tell)


@pytest.mark.parametrize("kind", ["authorized"], indirect=True)
def test_a_changed_rule_counts_for_the_next_request(tmp_path: Path) -> None:
    async def tell(pair: Pair) -> None:
        one, closed = request(("plain", 0, records())), request(("closed", 0, records()))
        for version in (9, NEWEST):
            codes = []
            for rules in ({CLOSED: [WRITE]}, {EVERYWHERE: []}, {EVERYWHERE: [WRITE], CLOSED: []}):
                for side in (pair.short, pair.general):
                    for resource, entries in rules.items():
                        await side.change(resource, *entries)
                codes += [(await pair.tell(wanted, version))[0][0] for wanted in (one, closed)]
            failed = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert codes == [0, 0, failed, 0, 0, 0]

    story(tmp_path, tell)


@pytest.mark.parametrize("kind", ["limited"], indirect=True)
def test_who_is_limited_is_measured_and_only_they(tmp_path: Path) -> None:
    async def tell(pair: Pair) -> None:
        one = request(("plain", 0, records()))
        await pair.ask(one, 9)
        pair.taken.clear()

        async def ask(client_id: str) -> tuple[bool, bool]:
            """Whether it was throttled, and whether it took the fast path."""
            answer = read(await pair.ask(one, 9, client_id=client_id), 9)
            return answer.throttle_time_ms > 0, (pair.taken[-1] if SHORT else answer.throttle_time_ms == 0)

        assert [await ask("client"), await ask("limited"), await ask("client")] == [
            (False, True),
            (True, False),
            (False, True),
        ]
        for key in ("producer_byte_rate", "request_percentage"):
            for rates, short in (({key: "1000000"}, False), ({}, True)):
                for side in (pair.short, pair.general):
                    side.limit("client", rates)
                assert (await ask("client"))[1] is short or not SHORT

    story(tmp_path, tell)


def count_writes(disk: FaultyDisk) -> list[int]:
    writes: list[int] = []
    write = disk.writev

    def writing(fd: int, parts: Any, position: int) -> int:
        writes.append(position)
        return write(fd, parts, position)

    disk.writev = writing  # type: ignore[method-assign]
    return writes
