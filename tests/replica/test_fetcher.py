"""Followers that copy from real leaders: what they request, what they keep, and which errors do not stop them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from log.making import everything
from replica.cluster import World, alike, append, play
from waiting import until

from ottla.cluster.image import Topic
from ottla.errors import ErrorCode
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.messages.offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

if TYPE_CHECKING:
    from pathlib import Path

OLD = {"inter.broker.protocol.version": "2.3"}


def test_followers_have_what_the_leader_has_and_it_is_committed(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partition = world.lead(0)
        for count in (1, 5, 3):
            append(partition, count)
        await until(lambda: partition.high == 9)
        assert alike(world[0], world[1], world[2])
        await until(lambda: world[1].log().high == world[2].log().high == 9)
        request, version = world.requests(FetchRequest)[0]
        assert version == 17
        assert request.replica_state.replica_epoch > 100

    play(tmp_path, story)


def test_a_request_names_only_what_has_changed(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partitions = [world.lead(0, index=index) for index in range(5)]
        await until(lambda: len(world.requests(FetchRequest)) > 4)
        world.asked.clear()
        append(partitions[2], 3)
        await until(lambda: partitions[2].high == 3)
        await asyncio.sleep(0.2)
        named = [
            [one.partition for topic in request.topics for one in topic.partitions]
            for request, _ in world.requests(FetchRequest)
        ]
        assert all(indexes in ([], [2]) for indexes in named)
        assert [2] in named
        assert [] in named

    play(tmp_path, story, ids=(0, 1))


def test_a_session_that_the_leader_has_forgotten_is_begun_again(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partition = world.lead(0)
        append(partition)
        await until(lambda: partition.high == 1)
        for identity in list(world[0].sessions._by_id):
            world[0].sessions._forget(identity)
        append(partition)
        await until(lambda: partition.high == 2)

    play(tmp_path, story, ids=(0, 1))


@pytest.mark.parametrize("options", [{}, {"inter.broker.protocol.version": "2.8"}, OLD])
def test_logs_that_have_parted_agree_again(tmp_path: Path, options: dict[str, str]) -> None:
    async def story(world: World) -> None:
        partition = world.lead(0, 1)
        append(partition, 5)
        await until(lambda: partition.high == 5 and world[1].log().high == 5)
        world.down.add(1)
        append(partition, 4)  # 0 continues to write, and no other broker learns of it
        world.down.clear()
        world.down.add(0)
        other = world.lead(1, 2, isr=(1,))
        append(other, 2, size=30)
        world.down.clear()
        world.lead(1, 3, isr=(1,))
        append(other, 1)
        await until(lambda: other.high == 8 and world[0].log().end == 8)
        assert alike(world[0], world[1])
        assert world[0].log().epochs.entries == world[1].log().epochs.entries

    play(tmp_path, story, ids=(0, 1), **options)


def test_an_old_protocol_asks_for_the_ends_of_epochs_first(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partition = world.lead(0, 1)
        append(partition)
        await until(lambda: partition.high == 1)
        world.lead(0, 2)
        append(partition)
        await until(lambda: partition.high == 2)
        assert {version for _, version in world.requests(OffsetForLeaderEpochRequest)} == {3}
        assert {version for _, version in world.requests(FetchRequest)} == {11}

    play(tmp_path, story, ids=(0, 1), **OLD)


def test_topics_without_an_id_are_named(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partition = world.lead(0, topic_id=bytes(16))
        append(partition)
        await until(lambda: partition.high == 1)
        other = world.lead(0, name="u", topic_id=b"u" * 16)
        append(other)
        await until(lambda: other.high == 1)
        assert {version for _, version in world.requests(FetchRequest)} == {12}
        world.lead(0, epoch=2, topic_id=b"t" * 16)
        append(partition)
        await until(lambda: partition.high == 2)
        assert world.requests(FetchRequest)[-1][1] == 17

    play(tmp_path, story, ids=(0, 1))


def test_a_follower_that_is_too_far_behind_begins_where_the_leader_does(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.down.add(1)
        partition = world.lead(0, isr=(0,))
        append(partition, 10)
        append(partition, 10)
        partition.log.delete_before(13)
        world.down.clear()
        world.lead(0, 2, isr=(0,))
        append(partition, 1)
        await until(lambda: world[1].log().end == 21)
        assert world[1].log().start == 13
        assert everything(world[1].log()) == everything(world[0].log())
        assert world.requests(ListOffsetsRequest)

    play(tmp_path, story, ids=(0, 1))


def test_the_start_of_the_log_follows_the_leader(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partition = world.lead(0)
        append(partition, 10)
        await until(lambda: partition.high == 10)
        partition.log.delete_before(4)
        partition.wake()
        await until(lambda: world[1].log().start == 4)
        assert partition.followers is not None
        followers = partition.followers
        await until(lambda: followers.low() == 4)

    play(tmp_path, story, ids=(0, 1))


def test_the_trouble_of_one_partition_is_its_own(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        good, bad = world.lead(0, index=0), world.lead(0, index=1)

        def spoil(answer: Any) -> Any:
            if isinstance(answer, FetchResponse):
                for topic in answer.responses:
                    for one in topic.partitions:
                        if one.partition_index == 1 and one.records:
                            data = bytearray(one.records)
                            data[-1] ^= 1
                            one.records = memoryview(data)
            return answer

        world.spoil = spoil
        append(bad)
        append(good)
        await until(lambda: good.high == 1)
        append(good)
        await until(lambda: good.high == 2)
        assert world[1].log(index=1).end == 0, "a checksum was wrong"
        world.spoil = lambda answer: answer
        await until(lambda: bad.high == 1)

    play(tmp_path, story, ids=(0, 1))


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_errors_of_the_leader_pass(tmp_path: Path, code: ErrorCode) -> None:
    async def story(world: World) -> None:
        left = [3]

        def spoil(answer: Any) -> Any:
            if isinstance(answer, FetchResponse) and left[0]:
                for topic in answer.responses:
                    for one in topic.partitions:
                        one.error_code, one.records, left[0] = code, memoryview(b""), left[0] - 1
            return answer

        world.spoil = spoil
        partition = world.lead(0)
        append(partition)
        await until(lambda: partition.high == 1)
        assert not left[0]

    play(tmp_path, story, ids=(0, 1))


def test_a_leader_that_keeps_no_topic_ids_is_asked_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.replica.fetcher.SETTLING_TRIES", 2)

    async def story(world: World) -> None:
        def forget(answer: Any) -> Any:
            if isinstance(answer, FetchResponse) and world.requests(FetchRequest)[-1][1] > 12:
                for topic in answer.responses:
                    for one in topic.partitions:
                        one.error_code, one.records = ErrorCode.UNKNOWN_TOPIC_ID, memoryview(b"")
            return answer

        world.spoil = forget
        partition = world.lead(0)
        append(partition)
        await until(lambda: partition.high == 1)
        assert {version for _, version in world.requests(FetchRequest)} == {17, 12}

    play(tmp_path, story, ids=(0, 1))


def test_a_leader_that_is_gone_is_found_again(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partition = world.lead(0)
        append(partition)
        await until(lambda: partition.high == 1)
        world.down.add(0)
        append(partition)
        await asyncio.sleep(0.1)
        assert world[1].log().end == 1
        world.down.clear()
        await until(lambda: partition.high == 2)

    play(tmp_path, story, ids=(0, 1))


def test_an_answer_that_comes_after_the_role_has_changed_is_dropped(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partition = world.lead(0)
        append(partition)
        await until(lambda: partition.high == 1)
        world.hold = asyncio.Event()
        append(partition, 5)
        await asyncio.sleep(0.05)
        other = world.lead(1, 2)
        append(other, size=40)
        hold, world.hold = world.hold, None
        hold.set()
        await until(lambda: other.high == 2)
        assert alike(world[0], world[1])

    play(tmp_path, story, ids=(0, 1))


def test_another_in_sync_set_in_the_same_epoch_does_not_begin_again(tmp_path: Path) -> None:
    """The leader's responses meanwhile would be dropped, and in a session it sends a high watermark only once."""

    async def story(world: World) -> None:
        partition = world.lead(0)
        append(partition)
        await until(lambda: world[1].log().high == 1)
        fetcher = world[1].fetchers._of["t", 0]
        before = fetcher._copies["t", 0]
        followed = world[1].replicas.require_hosted("t", 0)
        world[1].fetchers.follow(followed)
        assert fetcher._copies["t", 0] is before
        followed.epoch += 1
        world[1].fetchers.follow(followed)
        assert fetcher._copies["t", 0] is not before

    play(tmp_path, story, ids=(0, 1))


def test_a_partition_that_comes_while_a_fetch_waits_is_fetched_soon(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        first = world.lead(0)
        append(first)
        await until(lambda: first.high == 1)
        second = world.lead(0, index=1)
        append(second)
        await until(lambda: second.high == 1, seconds=20)

    play(tmp_path, story, ids=(0, 1), **{"replica.fetch.wait.max.ms": "30000"})


def test_a_loop_without_partitions_ends_and_a_new_one_begins(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partition = world.lead(0)
        append(partition)
        await until(lambda: partition.high == 1)
        fetchers = world[1].fetchers
        world[1].replicas.stop("t", 0, delete=True)
        await until(lambda: not fetchers._loops and not fetchers._tasks)
        again = world.lead(0, 2)
        append(again)
        await until(lambda: again.high == 2)
        assert alike(world[0], world[1])

    play(tmp_path, story, ids=(0, 1), **{"replica.fetch.wait.max.ms": "30000"})


def test_the_number_of_loops_can_change(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partitions = [world.lead(0, index=index) for index in range(8)]
        fetchers = world[1].fetchers
        for count, expected in (("4", 4), ("1", 1)):
            image = world[1].metadata.image
            world[1].metadata.publish(image.with_broker_config("", {"num.replica.fetchers": count}))
            await until(lambda: len(fetchers._loops) == expected)  # noqa: B023
            for partition in partitions:
                append(partition)
            await until(lambda: all(partition.high == partition.log.end for partition in partitions))

    play(tmp_path, story, ids=(0, 1))


def test_throttled_partitions_wait_and_the_others_do_not(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.down.add(1)
        slow = world.lead(0, isr=(0,))
        for _ in range(100):
            append(slow, size=1000)
        world.down.clear()
        metadata = world[1].metadata
        metadata.publish(metadata.image.with_broker_config("", {"follower.replication.throttled.rate": "1"}))
        configs = {"follower.replication.throttled.replicas": "0:1"}
        metadata.publish(metadata.image.with_topics(Topic("t", slow.topic_id, (), configs)))
        slow, fast = world.lead(0, 2, isr=(0,)), world.lead(0, index=1, isr=(0,))
        log = world[1].log()
        log.reconfigure(metadata.topic_config(metadata.image.topic("t")))
        await until(lambda: log.end > 0)
        before = log.end
        for end in (1, 2, 3):
            append(fast)
            await until(lambda: world[1].log(index=1).end == end)  # noqa: B023
        assert log.end == before < slow.log.end
        metadata.publish(metadata.image.with_broker_config("", {}))
        await until(lambda: log.end == slow.log.end)

    play(tmp_path, story, ids=(0, 1), **{"replica.fetch.max.bytes": "20000"})


def test_what_must_be_on_disk_is_there_before_the_leader_hears_of_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partition = world.lead(0)
        append(partition)
        await until(lambda: partition.high == 1)
        assert world[1].log().durability.recovery_point == 1

    play(tmp_path, story, ids=(0, 1), **{"log.flush.interval.messages": "1"})


def test_a_follower_that_begins_another_session_hears_of_everything(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partitions = [world.lead(0, index=index) for index in range(3)]
        for partition in partitions:
            append(partition)
        await until(lambda: all(partition.high == 1 for partition in partitions))
        world.down.add(1)
        append(partitions[1])
        await asyncio.sleep(0.1)
        world.down.clear()
        await until(lambda: partitions[1].high == 2)
        for partition in partitions:
            append(partition)
            await until(lambda: partition.high == partition.log.end)  # noqa: B023
        (watcher,) = partitions[0].watchers.values()
        assert world[0].sessions._by_id[watcher[0].id] is watcher[0], "the newest one"

    play(tmp_path, story, ids=(0, 1))


def test_a_session_that_goes_is_told_nothing_more(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partition = world.lead(0)
        append(partition)
        await until(lambda: partition.high == 1)
        world.down.add(1)
        await asyncio.sleep(0.1)
        for identity in list(world[0].sessions._by_id):
            world[0].sessions._forget(identity)
        assert not partition.watchers

    play(tmp_path, story, ids=(0, 1))


def test_many_partitions_share_an_answer_that_has_no_room_for_all(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.down.add(1)
        partitions = [world.lead(0, index=index, isr=(0,)) for index in range(6)]
        for _ in range(5):
            for partition in partitions:
                append(partition, size=2000)
        world.down.clear()
        for index in range(6):
            world.lead(0, 2, index=index, isr=(0,))
        await until(lambda: all(world[1].log(index=index).end == 5 for index in range(6)))

    play(tmp_path, story, ids=(0, 1), **{"replica.fetch.response.max.bytes": "3000"})


def test_a_leader_that_says_nothing_of_epochs_is_not_asked_without_end(tmp_path: Path) -> None:
    """In an old protocol version a follower asks for epoch end offsets before it fetches."""

    async def story(world: World) -> None:
        partition = world.lead(0)
        append(partition)
        await until(lambda: world[1].log().high == 1)
        world.answers[OffsetForLeaderEpochRequest] = lambda _: OffsetForLeaderEpochResponse(topics=[])
        world.asked.clear()
        partition = world.lead(0, 2)
        await until(lambda: bool(world.requests(OffsetForLeaderEpochRequest)))
        await asyncio.sleep(0.2)
        assert len(world.requests(OffsetForLeaderEpochRequest)) < 30
        world.answers.clear()
        append(partition)
        await until(lambda: partition.high == 2)

    play(tmp_path, story, ids=(0, 1), **OLD)
