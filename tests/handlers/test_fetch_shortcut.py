"""The fast path of Fetch and the full path: the same responses and the same sessions for every request.

Two brokers have the same logs and get the same frames at the same time. One of them has no fast path.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from handlers.test_shortcut import SHORT, Pair, Side, records, request, side
from handlers.test_shortcut import count as note_taken
from log.making import NOW_MS

from ottla.cluster.plans import NewTopic
from ottla.coord.transactions.markers import Marker, append
from ottla.errors import ErrorCode
from ottla.handlers.fetch_shortcut import COPIED_SIZE_MAX, ENTRIES_MAX, VERSION_MIN
from ottla.records import native
from ottla.records.batch import Record, build
from ottla.replica.leader import Leader
from ottla.replica.partition import Site
from ottla.wire.codec import decode, encode
from ottla.wire.frame import request_header
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

NEWEST = 18
VERSIONS = range(4, NEWEST + 1)
EVERYTHING = 1 << 20
REMEMBERED = "key", "offset", "size_max", "leader_epoch", "last_fetched_epoch", "high", "start"


class Wanted(NamedTuple):
    topic: str
    partition: int
    offset: int
    size_max: int = EVERYTHING
    leader_epoch: int = -1
    last_fetched_epoch: int = -1


class Asker(NamedTuple):
    """Sends requests to both brokers; the responses must be equal."""

    pair: Pair
    version: int = NEWEST

    def take(self) -> list[bool]:
        """For each fetch since the last call: whether it took the fast path."""
        found: list[bool] = self.pair.taken[:]
        self.pair.taken.clear()
        return found

    def at(self, version: int) -> Asker:
        return Asker(self.pair, version)

    async def produce(self, *data: tuple[str, int, bytes]) -> None:
        before = len(self.pair.taken)
        await self.pair.ask(request(*data), 11)
        del self.pair.taken[before:]

    def make(self, *wanted: Wanted, wait_ms: int = 0, forget: tuple[Wanted, ...] = (), **more: Any) -> FetchRequest:
        topics: list[FetchTopic] = []
        for topic, index, offset, size_max, leader_epoch, last_fetched_epoch in wanted:
            if not topics or topics[-1].topic != topic:
                topics.append(FetchTopic(topic=topic, topic_id=self.pair.short.topic_id(topic), partitions=[]))
            topics[-1].partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=leader_epoch,
                    fetch_offset=offset,
                    last_fetched_epoch=last_fetched_epoch,
                    partition_max_bytes=size_max,
                )
            )
        gone = [
            ForgottenTopic(topic=one.topic, topic_id=self.pair.short.topic_id(one.topic), partitions=[one.partition])
            for one in forget
        ]
        settings = {"min_bytes": 1, "max_bytes": EVERYTHING, "max_wait_ms": wait_ms, **more}
        return FetchRequest(topics=topics, forgotten_topics_data=gone, **settings)

    async def ask(self, *wanted: Wanted, change: Callable[[bytes], bytes] = bytes, **more: Any) -> FetchResponse | None:
        """The response; None if the connection was closed."""
        version = self.version
        asked = self.make(*wanted, **more)
        frame = change(request_header(1, version, 77, "client") + encode(asked, version))
        answers = [await one.ask(frame) for one in (self.pair.short, self.pair.general)]
        assert answers[0] == answers[1]
        assert sessions(self.pair.short) == sessions(self.pair.general)
        if not isinstance(answers[0], bytes):
            return None
        assert int.from_bytes(answers[0][:4]) == len(answers[0]) - 4
        return decode(FetchResponse, version, answers[0][9 if version >= 12 else 8 :])

    async def open(self, *wanted: Wanted, **more: Any) -> int:
        """Open a session with these partitions; return its id. The epoch of the next fetch is 1."""
        answer = await self.ask(*wanted, session_id=0, session_epoch=0, **more)
        assert answer is not None
        assert answer.session_id
        self.pair.taken.clear()
        return int(answer.session_id)


def sessions(one: Side) -> list[Any]:
    """The state of a broker's sessions."""
    found = one.dispatch._parts.sessions._by_id
    assert one.dispatch._parts.sessions._count == sum(len(session.watched) for session in found.values())
    return [
        (
            session.id,
            session.epoch,
            session.used_ms,
            [[getattr(watch, name) for name in REMEMBERED] for watch in session.watched.values()],
        )
        for session in found.values()
    ]


def story(folder: Path, tell: Callable[[Asker], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with side(folder / "short", short=True) as short, side(folder / "whole", short=False) as general:
            pair = Pair(short, general, [])
            for one in (short, general):
                numbers = count(1)
                one.dispatch._parts.sessions._draw = lambda numbers=numbers: next(numbers)  # type: ignore[misc]
            note_taken(pair)
            await tell(Asker(pair))
            assert traffic(short) == traffic(general)
            assert short.dispatch.errors == general.dispatch.errors

    asyncio.run(whole())


def traffic(one: Side) -> list[tuple[str, int]]:
    return [(partition.topic, partition.traffic.bytes_out) for partition in one.dispatch._parts.replicas]


def partitions(asker: Asker, topic: str, index: int) -> list[Any]:
    """The partition in both brokers."""
    return [one.dispatch._parts.replicas.require_led(topic, index) for one in (asker.pair.short, asker.pair.general)]


async def fill(asker: Asker) -> None:
    """Offsets 0 to 29 of plain-0 in 10 batches, 40 kB in other-0, one record in plain-1, nothing in plain-2."""
    for _ in range(10):
        await asker.produce(("plain", 0, records(3)))
    for _ in range(4):
        await asker.produce(("other", 0, records(size=10_000)))
    await asker.produce(("plain", 1, records()))


def test_usual_requests_of_every_version_take_it(tmp_path: Path) -> None:
    async def tell(asker: Asker) -> None:
        await fill(asker)
        for version in VERSIONS:
            at = asker.at(version)
            await at.ask(Wanted("plain", 0, 0))  # makes the route
            asker.take()
            for level in (0, 1):
                for offset in (0, 1, 14, 29):
                    answer = await at.ask(Wanted("plain", 0, offset), isolation_level=level)
                    assert answer is not None
                    assert answer.responses[0].partitions[0].records
                await at.ask(Wanted("plain", 0, 3), Wanted("plain", 1, 0), Wanted("other", 0, 0), isolation_level=level)
                await at.ask(Wanted("plain", 0, 5, 100), Wanted("other", 0, 1, 100), isolation_level=level)
                await at.ask(Wanted("plain", 0, 5, leader_epoch=0), isolation_level=level)
                await at.ask(Wanted("plain", 0, 5), rack_id="here", isolation_level=level)
            assert asker.take() == [True] * 16 * SHORT * (version >= VERSION_MIN)

    story(tmp_path, tell)


def test_bounds(tmp_path: Path) -> None:
    """Limits per partition and in total, also below the size of a batch; at and around the size that is copied."""

    async def tell(asker: Asker) -> None:
        await fill(asker)
        large = build([Record(0, NOW_MS, None, b"x" * (COPIED_SIZE_MAX - 100), ())])
        for _ in range(3):
            await asker.produce(("plain", 2, large))
        every = [Wanted("plain", 0, 0), Wanted("other", 0, 0), Wanted("plain", 1, 0), Wanted("plain", 2, 0)]
        for size in (-5, 0, 1, 99, 10_000, len(large) - 1, len(large), len(large) + 1, 3 * len(large), EVERYTHING):
            await asker.ask(*every, max_bytes=size)
            await asker.ask(*[one._replace(size_max=size) for one in every])
            await asker.ask(*[one._replace(size_max=size) for one in reversed(every)], max_bytes=20_000)
            await asker.ask(Wanted("plain", 2, 0, size))
        assert sum(asker.take()) == 40 * SHORT - SHORT, "all but the first, which makes the route"

    story(tmp_path, tell)


def test_sessions(tmp_path: Path) -> None:
    async def tell(asker: Asker) -> None:
        await fill(asker)
        for version in (10, 11, 12, 13, NEWEST):
            at = asker.at(version)
            await at.ask(Wanted("plain", 0, 0))
            every = [Wanted("plain", 0, 0, 200), Wanted("plain", 1, 0), Wanted("other", 0, 0), Wanted("plain", 2, 0)]
            session = await at.open(*every)
            answer = await at.ask(Wanted("plain", 0, 6, 200), session_id=session, session_epoch=1)
            assert answer is not None
            assert [one.topic_id or one.topic for one in answer.responses]
            await at.ask(session_id=session, session_epoch=2)
            await at.ask(Wanted("plain", 1, 1), Wanted("other", 0, 4), session_id=session, session_epoch=3)
            assert asker.take() == [True] * 3 * SHORT
            # Only one high watermark is new.
            await at.ask(Wanted("plain", 0, 30), session_id=session, session_epoch=4)
            await asker.produce(("plain", 2, records()))
            await at.ask(session_id=session, session_epoch=5)
            await at.ask(Wanted("plain", 2, 2**40), session_id=session, session_epoch=6)  # an error
            await at.ask(Wanted("plain", 2, 0), session_id=session, session_epoch=7)
            await at.ask(Wanted("plain", 2, 0), session_id=session, session_epoch=7)  # used already
            await at.ask(Wanted("plain", 2, 0), session_id=99, session_epoch=7)
            new = Wanted("plain", 7, 0)
            await at.ask(new, session_id=session, session_epoch=8)  # another partition, which does not exist
            await at.ask(forget=(new,), session_id=session, session_epoch=9)
            await at.ask(Wanted("plain", 2, 0), forget=(every[0],), session_id=session, session_epoch=10)
            asker.take()
            await at.ask(session_id=session, session_epoch=11)
            assert asker.take() == [True] * SHORT
            await asker.at(10 if version >= 13 else NEWEST).ask(session_id=session, session_epoch=12)
            asker.take()
            # A consumer forgets partitions of which it still has buffered records, and adds them again later.
            await at.ask(forget=(every[1], every[3], new), session_id=session, session_epoch=12)
            await at.ask(every[0], every[1], forget=(every[2],), session_id=session, session_epoch=13)
            await at.ask(every[2], forget=(every[2],), session_id=session, session_epoch=14)
            assert asker.take() == [True] * 3 * SHORT
            await at.ask(forget=tuple(every), session_id=session, session_epoch=15)
            assert sessions(asker.pair.short) == []
            session = await at.open(*every)
            await at.ask(*every, session_id=session, session_epoch=-1)
            assert sessions(asker.pair.short) == []

    story(tmp_path, tell)


def test_sessions_by_chance(tmp_path: Path) -> None:
    chance = random.Random(5)
    places = [("plain", 0), ("plain", 1), ("plain", 2), ("other", 0), ("small", 0)]

    async def tell(asker: Asker) -> None:
        ends = dict.fromkeys(places, 0)
        for version in (11, 12, NEWEST):
            at = asker.at(version)
            session, epoch = 0, 0
            for _ in range(120):
                for place in chance.sample(places, chance.randrange(3)):
                    size = chance.choice([1, 1000, 30_000])
                    await asker.produce((*place, records(2, size=size)))
                    ends[place] += 2
                wanted = [
                    Wanted(*place, max(0, ends[place] - chance.randrange(-1 if chance.random() < 0.1 else 0, 9)))
                    for place in chance.sample(places, chance.randrange(len(places) + 1))
                ]
                if not session:
                    answer = await at.ask(*wanted, session_epoch=0)
                    session, epoch = (0, 0) if answer is None else (answer.session_id, 1)
                else:
                    bounds: dict[str, Any] = {"max_bytes": chance.choice([500, 20_000, EVERYTHING])}
                    forget = (Wanted(*chance.choice(places), 0),) if chance.random() < 0.3 else ()
                    answer = await at.ask(
                        *wanted, forget=forget, session_id=session, session_epoch=epoch, isolation_level=1, **bounds
                    )
                    epoch += 1
                    if answer is None or answer.error_code or not answer.session_id:
                        session = 0
        assert sum(asker.take()) > 150 or not SHORT

    story(tmp_path, tell)


def test_what_is_not_usual_goes_the_general_way(tmp_path: Path) -> None:
    async def tell(asker: Asker) -> None:
        await fill(asker)
        good = Wanted("plain", 0, 0)
        for version in (10, 11, 12, 13, 15, NEWEST):
            at = asker.at(version)
            await at.ask(good)
            asker.take()
            for bad in (
                Wanted("nowhere", 0, 0), Wanted("plain", 9, 0), Wanted("plain", -1, 0), Wanted("plain", 0, 31),
                Wanted("plain", 0, -1), Wanted("plain", 0, 0, leader_epoch=5),
            ):  # fmt: skip
                await at.ask(bad)
                await at.ask(good, bad, wait_ms=1)
            await at.ask(good, good._replace(offset=5))  # the same partition twice
            await at.ask(Wanted("plain", 0, 30), wait_ms=1)  # nothing there
            await at.ask(good, min_bytes=10**6, wait_ms=1)
            await at.ask(good, isolation_level=2)
            await at.ask(good, session_epoch=0)
            await at.ask(good, session_id=55, session_epoch=-1)
            await at.ask()
            await at.ask(*[Wanted("plain", number, 0) for number in range(ENTRIES_MAX + 1)])
            assert not any(asker.take())
            await at.ask(Wanted("plain", 2, 0), good)
            await at.ask(Wanted("plain", 0, 30))  # no records, and it does not wait
            assert all(asker.take())
        for version in (12, NEWEST):
            await asker.at(version).ask(good._replace(last_fetched_epoch=0))
            await asker.at(version).ask(good._replace(last_fetched_epoch=9))
        await asker.at(11).ask(good, replica_id=2)
        await asker.at(17).ask(good, replica_state=ReplicaState(replica_id=2, replica_epoch=1))
        await asker.at(17).ask(good, replica_state=ReplicaState(replica_id=-2))
        await asker.at(17).ask(good, cluster_id="ours")
        assert not any(asker.take())

    story(tmp_path, tell)


def test_hostile_frames(tmp_path: Path) -> None:
    def hostile(seed: int, version: int, frame: bytes) -> bytes:
        return calm(change(frame, seed), version)

    def change(frame: bytes, seed: int) -> bytes:
        chance = random.Random(seed)
        made = bytearray(frame)
        kind = chance.randrange(5)
        if kind == 0:
            return bytes(made[: chance.randrange(4, len(made))])
        if kind == 1:
            return bytes(made) + chance.randbytes(chance.randrange(1, 9))
        at = chance.randrange(8, len(made))
        if kind == 2:
            made[at] ^= 1 << chance.randrange(8)
        elif kind == 3:
            made[at : at + 4] = chance.choice([b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", bytes(4)])
        else:
            made[at:at] = chance.choice([b"\x80", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80", b"\x01\x00\x00"])
        return bytes(made)

    async def tell(asker: Asker) -> None:
        await fill(asker)
        seeds = count()
        for version in range(VERSION_MIN, NEWEST + 1):
            at = asker.at(version)
            wanted = Wanted("plain", 0, 0), Wanted("other", 0, 0), Wanted("plain", 1, 0)
            await at.ask(*wanted)
            for _ in range(150):
                # A mutation may have produced a long wait; the test must not wait that long.
                await at.ask(*wanted, change=partial(hostile, next(seeds), version))

    story(tmp_path, tell)


def calm(frame: bytes, version: int) -> bytes:
    """The same without a long wait."""
    at = 8 + 2 + len("client") + (version >= 12) + 4 * (version < 15)
    return frame[:at] + bytes(4) + frame[at + 4 :] if len(frame) >= at + 4 else frame


def test_committed_records_only(tmp_path: Path) -> None:
    """Behind an open transaction, and around an aborted and a committed one."""

    async def tell(asker: Asker) -> None:
        await fill(asker)
        await asker.ask(Wanted("plain", 0, 0))
        for sequence, commits in enumerate((False, True)):
            for one in partitions(asker, "plain", 0):
                opened = build(
                    [Record(0, NOW_MS, b"k", b"v", ())],
                    producer_id=7,
                    producer_epoch=0,
                    base_sequence=sequence,
                    transactional=True,
                )
                one.append(memoryview(opened), NOW_MS, 11)
            await asker.produce(("plain", 0, records()))
            end = asker.pair.short.broker._store.logs["plain", 0].end
            for offset in (0, 29, 30, end - 2, end - 1, end):
                await asker.ask(Wanted("plain", 0, offset), isolation_level=1)
                await asker.ask(Wanted("plain", 0, offset))
            for one in partitions(asker, "plain", 0):
                append(one, Marker(7, 0, 0, 0, commits=commits), NOW_MS)
            asker.take()
            await asker.ask(Wanted("plain", 0, 0), isolation_level=1)
            assert asker.take() == [False] * SHORT, "something was aborted"
            for offset in (29, 30, 31, 32, 33, end, end + 1):
                await asker.ask(Wanted("plain", 0, offset), isolation_level=1)
                await asker.ask(Wanted("plain", 0, offset))
            assert any(asker.take()) or not SHORT

    story(tmp_path, tell)


def test_with_followers(tmp_path: Path) -> None:
    """Consumers read up to the high watermark, and one in another rack may be redirected to a replica there."""

    async def tell(asker: Asker) -> None:
        await fill(asker)
        await asker.ask(Wanted("plain", 0, 0))
        for one in partitions(asker, "plain", 0):
            followers = Leader(
                1, replicas=(1, 99), isr=(1, 99), epoch=one.epoch, version=0, end=30, high=10, now_ms=0,
                lag_ms=10**6, epoch_of=lambda _: -1,
            )  # fmt: skip
            one.lead(one.epoch, followers, Site(asker.pair.short.dispatch._parts.clock, lambda _: None))
        asker.take()
        for offset in (0, 8, 9, 10, 11):
            answer = await asker.ask(Wanted("plain", 0, offset))
            assert answer is not None
            assert answer.responses[0].partitions[0].high_watermark == 10
        assert asker.take() == [True] * 5 * SHORT
        await asker.ask(Wanted("plain", 0, 0), rack_id="elsewhere")
        assert asker.take() == [False] * SHORT
        for one in partitions(asker, "plain", 0):
            one.lead(3)
        await asker.ask(Wanted("plain", 0, 0, leader_epoch=0))
        assert asker.take() == [False] * SHORT, "fenced"
        await asker.ask(Wanted("plain", 0, 0, leader_epoch=3))
        assert asker.take() == [True] * SHORT
        for one in partitions(asker, "plain", 0):
            one.follow(4, 99)
        await asker.ask(Wanted("plain", 0, 0))
        assert asker.take() == [False] * SHORT, "from a follower"

    story(tmp_path, tell)


def test_a_topic_that_is_deleted_and_made_again(tmp_path: Path) -> None:
    async def tell(asker: Asker) -> None:
        await fill(asker)
        old = {version: asker.at(version).make(Wanted("plain", 0, 0)) for version in (12, NEWEST)}
        for version in old:
            await asker.at(version).ask(Wanted("plain", 0, 0))
        by_id = await asker.open(Wanted("plain", 0, 0), Wanted("other", 0, 0))
        by_name = await asker.at(12).open(Wanted("plain", 0, 0), Wanted("other", 0, 0))
        for again in (False, True):
            for one in (asker.pair.short, asker.pair.general):
                controller: Any = one.dispatch._parts.controller
                if again:
                    await controller.create_topics([NewTopic("plain", 1, 1)])
                else:
                    await controller.delete_topics(["plain"])
            if again:
                await asker.produce(("plain", 0, records(2)))
            for version, asked in old.items():
                frame = request_header(1, version, 1, "client") + encode(asked, version)
                answers = [await one.ask(frame) for one in (asker.pair.short, asker.pair.general)]
                assert answers[0] == answers[1]
            await asker.ask(session_id=by_id, session_epoch=1 + again)
            await asker.at(12).ask(session_id=by_name, session_epoch=1 + again)

    story(tmp_path, tell)


def test_where_the_log_begins_later(tmp_path: Path) -> None:
    async def tell(asker: Asker) -> None:
        await fill(asker)
        await asker.ask(Wanted("plain", 0, 0))
        session = await asker.open(Wanted("plain", 0, 12), Wanted("plain", 1, 1))
        for one in partitions(asker, "plain", 0):
            one.log.delete_before(13)
        for one in partitions(asker, "plain", 1):
            one.log.delete_before(1)
        asker.take()
        await asker.ask(session_id=session, session_epoch=1)
        await asker.ask(Wanted("plain", 0, 13), session_id=session, session_epoch=2)
        answer = await asker.ask(session_id=session, session_epoch=3)
        assert answer is not None
        assert answer.responses[0].partitions[0].log_start_offset == 13
        assert asker.take() == [False, True, True] * SHORT

    story(tmp_path, tell)


def test_a_disk_that_fails(tmp_path: Path) -> None:
    async def tell(asker: Asker) -> None:
        await fill(asker)
        await asker.ask(Wanted("plain", 0, 0))
        for one in partitions(asker, "plain", 0):
            one.log.fault = "gone"
        answer = await asker.ask(Wanted("plain", 1, 0), Wanted("plain", 0, 0))
        assert answer is not None
        codes = [one.error_code for one in answer.responses[0].partitions]
        assert codes == [0, ErrorCode.KAFKA_STORAGE_ERROR]

    story(tmp_path, tell)


def test_quotas_that_come_and_go(tmp_path: Path) -> None:
    async def tell(asker: Asker) -> None:
        await fill(asker)
        await asker.ask(Wanted("plain", 0, 0))
        asker.take()
        await asker.ask(Wanted("plain", 0, 0))
        assert asker.take() == [True] * SHORT
        sides = asker.pair.short, asker.pair.general
        for one in sides:
            one.limit("client", {"consumer_byte_rate": str(1 << 40)})
        await asker.ask(Wanted("plain", 0, 0))
        assert asker.take() == [], "it is measured"
        for one in sides:
            one.limit("client", {})
        await asker.ask(Wanted("plain", 0, 0))
        assert asker.take() == [True] * SHORT

    story(tmp_path, tell)


@pytest.mark.skipif(native.fetch_reader() is None, reason="without the native part there is no shortcut")
def test_a_small_answer_is_its_pieces_with_the_records_between_them(tmp_path: Path) -> None:
    reader, path = native.fetch_reader(), tmp_path / "log"
    assert reader is not None
    path.write_bytes(bytes(range(256)))
    parts: list[tuple[int, int, int, int, int]] = [(0, 9, 9, 0, 100), (1, 9, 9, 0, 0), (2, 9, 9, 0, 50)]
    asked = 12, 77, 5, False, [("orders", parts), ("others", parts[:1])]
    with path.open("rb") as file:
        fd = file.fileno()
        regions = [(fd, 0, 100), (fd, 200, 50), (fd, 156, 100)]
        first, second, third, last = reader.answer(*asked) or []
        whole = path.read_bytes()
        expected = first + whole[:100] + second + whole[200:250] + third + whole[156:] + last
        assert reader.answer_whole(*asked, regions) == expected
        assert reader.answer_whole(*asked, [*regions[:2], (fd, 157, 100)]) is None, "the file is too short"
        assert reader.answer_whole(*asked, [*regions[:2], (-1, 0, 100)]) is None, "the file is closed"
        assert reader.answer_whole(*asked, regions[:2]) is None, "a region is missing"
