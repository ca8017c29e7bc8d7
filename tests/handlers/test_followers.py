"""Produce, Fetch and others on a partition with several replicas: who sees what, and when a produce is acknowledged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from log.making import produced
from replica.cluster import finished
from replica.making import TOPIC_ID, Host, cluster, state
from replica.test_partition import play, turns

from ottla.cluster.image import Broker, Topic
from ottla.errors import ErrorCode
from ottla.handlers.call import Call
from ottla.handlers.fetch import fetch
from ottla.handlers.offsets import delete_records, list_offsets, offset_for_leader_epoch
from ottla.handlers.produce import produce
from ottla.log.replicate import replicate
from ottla.replica.selector import RACK_AWARE
from ottla.replica.throttle import Throttle
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData, ReplicaState
from ottla.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.replica.partition import Partition


def call(version: int) -> Call:
    return Call(1, version, "c", "127.0.0.1", "PLAINTEXT", ("127.0.0.1", 9092))


def fetching(
    host: Host,
    offset: int = 0,
    *,
    replica: int = -1,
    version: int = 12,
    epoch: int = -1,
    last_epoch: int = -1,
    wait_ms: int = 0,
    rack: str = "",
    start: int = 0,
    broker_epoch: int = -1,
) -> Any:
    one = FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=start,
        partition_max_bytes=1 << 20,
    )
    request = FetchRequest(
        replica_id=replica,
        replica_state=ReplicaState(replica_id=replica, replica_epoch=broker_epoch),
        max_wait_ms=wait_ms,
        min_bytes=1,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", topic_id=TOPIC_ID, partitions=[one])],
        rack_id=rack,
    )
    return fetch(host.parts, call(version), request)


async def fetched(host: Host, offset: int = 0, **more: Any) -> PartitionData:
    answer = await finished(fetching(host, offset, **more))
    data: PartitionData = answer.responses[0].partitions[0]
    return data


def size(data: PartitionData) -> int:
    records: Any = data.records
    return len(records) if isinstance(records, bytes) else records.size


def producing(host: Host, *, acks: int = -1, timeout_ms: int = 60_000, version: int = 10) -> Any:
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=produced())])
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data])
    return produce(host.parts, call(version), request)


def result(answer: Any) -> Any:
    return answer.responses[0].partition_responses[0]


class TestProduce:
    def test_all_is_answered_when_it_is_committed(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            partition = host.assign(state())
            answer = producing(host)
            host.fetch(partition, 1, 1)
            await turns()
            assert not answer.done()
            host.fetch(partition, 2, 1)
            one = result(await answer)
            assert (one.error_code, one.base_offset) == (0, 0)

        play(tmp_path, story)

    def test_one_is_answered_after_our_append(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            partition = host.assign(state())
            assert result(producing(host, acks=1)).error_code == 0
            assert producing(host, acks=0) is None
            assert (partition.log.end, partition.high) == (2, 0)

        play(tmp_path, story)

    def test_the_requests_time_runs_out(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            partition = host.assign(state())
            one = result(await producing(host, timeout_ms=1))
            assert (one.error_code, one.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)
            assert partition.log.end == 1, "it may well be committed later"
            host.fetch(partition, 1, 1)
            host.fetch(partition, 2, 1)
            assert partition.high == 1

        play(tmp_path, story)

    def test_a_leader_that_is_replaced_says_so(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            host.assign(state())
            answer = producing(host)
            host.metadata.publish(cluster(0, 1, 2).with_topics(Topic("t", TOPIC_ID, (state(1, 2),), {})))
            host.assign(state(leader=1, epoch=2, version=1))
            assert result(await answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            again = producing(host)
            one = result(again)
            assert one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (one.current_leader.leader_id, one.current_leader.leader_epoch) == (1, 2)
            assert [(node.node_id, node.port) for node in again.node_endpoints] == [(1, 9093)]
            assert not producing(host, version=9).node_endpoints

        play(tmp_path, story)

    def test_too_few_replicas(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            partition = host.assign(state(isr=(0,)))
            assert result(producing(host)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert partition.log.end == 0
            assert result(producing(host, acks=1)).error_code == 0
            host.assign(state(isr=(0, 1), version=1))
            answer = producing(host)
            host.clock.ms += 60_000
            host.assign(state(isr=(0,), version=2))
            one = result(await answer)
            assert (one.error_code, one.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 1)
            assert size(await fetched(host)) > 0, "reads go on"

        play(tmp_path, story, **{"min.insync.replicas": "2"})

    def test_those_who_give_up_are_forgotten(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            partition = host.assign(state())
            for _ in range(3000):
                waited = partition.wait_for_commit(1)
                assert waited is not None
                waited.cancel()
            assert len(partition._commits) < 2000

        play(tmp_path, story)


class TestFetch:
    def test_followers_read_to_the_end_and_consumers_to_the_high_watermark(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            partition = host.assign(state())
            host.append(partition, 3)
            assert size(await fetched(host, replica=1)) > 0
            assert size(await fetched(host)) == 0
            assert size(await fetched(host, replica=-2)) > 0
            await fetched(host, 3, replica=1)
            last = await fetched(host, 3, replica=2)
            assert last.high_watermark == 3, "what it has itself counts already"
            assert size(await fetched(host)) > 0

        play(tmp_path, story)

    def test_a_waiting_consumer_is_answered_when_the_followers_have_it(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            partition = host.assign(state(replicas=(0, 1), isr=(0, 1)))
            consumer = fetching(host, wait_ms=60_000)
            follower = fetching(host, replica=1, wait_ms=60_000)
            host.append(partition)
            assert size((await follower).responses[0].partitions[0]) > 0
            assert not consumer.done()
            await fetched(host, 1, replica=1)
            assert size((await consumer).responses[0].partitions[0]) > 0

        play(tmp_path, story)

    def test_a_follower_counts_once_when_it_asks_not_when_it_is_answered(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            partition = host.assign(state(replicas=(0, 1), isr=(0, 1)))
            waiting = fetching(host, replica=1, wait_ms=60_000)
            asked_ms = host.clock.ms
            host.clock.ms += 5000
            host.append(partition)
            await waiting
            assert partition.followers is not None
            assert partition.followers.followers[1].fetched_ms == asked_ms

        play(tmp_path, story)

    def test_strangers_and_old_leaders(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            host.assign(state(epoch=5, replicas=(0, 1), isr=(0, 1)))
            assert (await fetched(host, replica=2, epoch=5)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
            assert (await fetched(host, replica=2)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (await fetched(host, replica=1, epoch=4)).error_code == ErrorCode.FENCED_LEADER_EPOCH
            assert (await fetched(host, replica=1, epoch=6)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
            assert (await fetched(host, 9, replica=1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            partition = host.replicas.require_led("t", 0)
            assert partition.followers is not None
            assert partition.followers.followers[1].end == -1, "none of them told what it has"

        play(tmp_path, story)

    def test_a_diverging_follower_is_told_where_and_does_not_count(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            partition = host.assign(state(epoch=1))
            host.append(partition, 4)
            host.assign(state(epoch=3, version=1))
            host.append(partition, 4)
            diverging = (await fetched(host, 6, replica=1, last_epoch=2, wait_ms=60_000)).diverging_epoch
            assert (diverging.epoch, diverging.end_offset) == (1, 4)
            assert partition.followers is not None
            assert partition.followers.followers[1].end == -1
            assert (await fetched(host, 4, replica=1, last_epoch=1)).diverging_epoch.end_offset == -1

        play(tmp_path, story)

    @pytest.mark.parametrize("version", [4, 11, 12, 13, 15, 17])
    def test_a_replica_is_known_in_every_version(self, tmp_path: Path, version: int) -> None:
        async def story(host: Host) -> None:
            partition = host.assign(state())
            await fetched(host, replica=1, version=version, broker_epoch=44, start=0)
            assert partition.followers is not None
            follower = partition.followers.followers[1]
            assert (follower.end, follower.start) == (0, 0)
            assert follower.broker_epoch == (44 if version >= 15 else -1)

        play(tmp_path, story)

    def test_a_follower_serves_consumers_that_know_racks_and_nobody_else(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            partition = host.assign(state(leader=1))
            replicate(partition.log, produced(2), now_ms=0)
            partition.advance(1)
            found = await fetched(host, version=11)
            assert (found.error_code, found.high_watermark) == (0, 1)
            assert (await fetched(host, version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (await fetched(host, replica=2, version=12)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            debugging = await fetched(host, replica=-2, version=4)
            assert (debugging.error_code, size(debugging) > 0) == (0, True)

        play(tmp_path, story)

    def test_a_consumer_is_sent_to_its_rack(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            racks = {0: "a", 1: "b", 2: "c"}
            brokers = {one: Broker(one, {"PLAINTEXT": ("h", 1)}, rack, -1) for one, rack in racks.items()}
            host.metadata.publish(host.metadata.image._replace(brokers=brokers))
            partition = host.assign(state(isr=(0, 1)))
            host.append(partition)
            host.fetch(partition, 1, 1)
            host.fetch(partition, 2, 1)
            away = await fetched(host, rack="b", wait_ms=60_000)
            assert (away.preferred_read_replica, size(away)) == (1, 0)
            assert (await fetched(host, rack="c")).preferred_read_replica == -1, "not in sync"
            for rack in ("a", "x", ""):
                assert (await fetched(host, rack=rack)).preferred_read_replica == -1

        play(tmp_path, story, **{"replica.selector.class": RACK_AWARE})

    def test_without_a_selector_everybody_reads_here(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            host.assign(state())
            assert (await fetched(host, rack="b")).preferred_read_replica == -1

        play(tmp_path, story)

    def test_who_asks_the_wrong_broker_is_told_the_right_one(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            host.metadata.publish(cluster(0, 1, 2).with_topics(Topic("t", TOPIC_ID, (state(1, 2),), {})))
            host.assign(state(leader=1, epoch=2))
            answer = await finished(fetching(host, replica=2, version=16))
            assert answer.responses[0].partitions[0].current_leader.leader_id == 1
            assert [node.node_id for node in answer.node_endpoints] == [1]

        play(tmp_path, story)

    def test_a_throttled_follower_waits_unless_it_is_in_sync(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            host.throttle = Throttle(host.clock, lambda: 1, samples=2, sample_s=1)
            partition = host.assign(state(isr=(0, 2)))
            throttled = Topic("t", TOPIC_ID, (), {"leader.replication.throttled.replicas": "0:1,0:2"})
            partition.log.reconfigure(host.metadata.topic_config(throttled))
            host.append(partition)
            assert size(await fetched(host, replica=1)) > 0
            assert size(await fetched(host, replica=1)) == 0, "the rate is used up"
            assert size(await fetched(host, replica=2)) > 0, "in sync: acknowledgements wait for it"
            host.clock.ms += 10_000
            assert size(await fetched(host, replica=1)) > 0

        play(tmp_path, story)


class TestOffsets:
    async def asked(self, host: Host, timestamp: int, *, replica: int = -1, version: int = 7) -> Any:
        one = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=replica, topics=[ListOffsetsTopic(name="t", partitions=[one])])
        return (await finished(list_offsets(host.parts, call(version), request))).topics[0].partitions[0]

    def test_followers_see_the_end_and_consumers_the_high_watermark(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            partition = host.assign(state())
            host.append(partition, 3)
            assert (await self.asked(host, -1)).offset == 0
            assert (await self.asked(host, -1, replica=1)).offset == 3
            assert (await self.asked(host, -2, replica=1)).offset == 0
            host.assign(state(leader=1, epoch=2, version=1))
            assert (await self.asked(host, -1)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (await self.asked(host, -1, replica=-2)).offset == 3

        play(tmp_path, story)

    def test_a_new_leader_does_not_tell_an_end_that_may_go_back(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            partition = host.assign(state(leader=1))
            replicate(partition.log, produced(5), now_ms=0)
            partition.advance(2)
            host.assign(state(epoch=2, version=1))
            assert (await self.asked(host, -1)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
            assert (await self.asked(host, -1, version=4)).error_code == ErrorCode.LEADER_NOT_AVAILABLE
            assert (await self.asked(host, -2)).error_code == 0
            host.fetch(partition, 1, 5)
            host.fetch(partition, 2, 5)
            assert (await self.asked(host, -1)).offset == 5

        play(tmp_path, story)

    def test_only_the_leader_tells_where_epochs_end(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            partition = host.assign(state(epoch=1))
            host.append(partition, 4)
            one = OffsetForLeaderPartition(partition=0, current_leader_epoch=1, leader_epoch=1)
            request = OffsetForLeaderEpochRequest(
                replica_id=1, topics=[OffsetForLeaderTopic(topic="t", partitions=[one])]
            )
            found = (await finished(offset_for_leader_epoch(host.parts, call(4), request))).topics[0].partitions[0]
            assert (found.error_code, found.end_offset) == (0, 4)
            host.assign(state(leader=1, epoch=2, version=1))
            found = (await finished(offset_for_leader_epoch(host.parts, call(4), request))).topics[0].partitions[0]
            assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

        play(tmp_path, story)

    def test_records_are_deleted_when_all_live_replicas_have_deleted_them(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            partition = host.assign(state())
            host.append(partition, 4)
            replicas_at(host, partition, 0)
            answer = asyncio.ensure_future(finished(delete_records(host.parts, call(2), deletion(3))))
            await asyncio.sleep(0.05)
            assert not answer.done()
            assert partition.log.start == 3
            replicas_at(host, partition, 3)
            one = (await answer).topics[0].partitions[0]
            assert (one.error_code, one.low_watermark) == (0, 3)

        play(tmp_path, story)

    def test_a_replica_that_does_not_delete_in_time(self, tmp_path: Path) -> None:
        async def story(host: Host) -> None:
            partition = host.assign(state())
            host.append(partition, 4)
            replicas_at(host, partition, 0)
            one = (
                (await finished(delete_records(host.parts, call(2), deletion(3, timeout_ms=0)))).topics[0].partitions[0]
            )
            assert one.error_code == ErrorCode.REQUEST_TIMED_OUT
            host.metadata.publish(cluster(0))
            one = (await finished(delete_records(host.parts, call(2), deletion(4)))).topics[0].partitions[0]
            assert (one.error_code, one.low_watermark) == (0, 4), "the dead are not waited for"

        play(tmp_path, story)


def replicas_at(host: Host, partition: Partition, start: int) -> None:
    for replica in (1, 2):
        partition.note_fetch(replica, 4, start, -1, epoch_known=True)


def deletion(offset: int, timeout_ms: int = 60_000) -> DeleteRecordsRequest:
    one = DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[one])], timeout_ms=timeout_ms)
