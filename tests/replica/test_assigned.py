"""Roles from the controller: which are accepted, which are refused, and who is notified."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from replica.making import Host, cluster, state
from replica.test_partition import play

from ottla.cluster.image import Partition as State
from ottla.cluster.image import Topic
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.replica.partition import Partition


def refusal(work: Callable[[], object]) -> ErrorCode:
    with pytest.raises(BrokerError) as refused:
        work()
    return refused.value.code


def test_only_what_is_led_is_found_as_led(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        replicas = host.replicas
        assert refusal(lambda: replicas.require_hosted("t", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        led, followed = host.assign(state()), host.assign(state(leader=1, index=1))
        assert replicas.require_led("t", 0) is led
        assert replicas.require_led_by_id(led.topic_id, 0) is led
        assert replicas.require_hosted("t", 1) is followed
        assert replicas.require_hosted_by_id(led.topic_id, 1) is followed
        assert refusal(lambda: replicas.require_led("t", 1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refusal(lambda: replicas.require_led_by_id(led.topic_id, 1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refusal(lambda: replicas.require_led_by_id(b"?" * 16, 0)) is ErrorCode.UNKNOWN_TOPIC_ID
        parts = tuple(State(index, (1,), (1,), 1, 1) for index in range(3))
        host.metadata.publish(host.metadata.image.with_topics(Topic("t", led.topic_id, parts, {})))
        assert refusal(lambda: replicas.require_led("t", 2)) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(tmp_path, story)


def test_roles_change_with_the_epoch(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        told: list[tuple[int, bool]] = []
        host.replicas.subscribe_roles(lambda partition, led: told.append((partition.epoch, led)))
        partition = host.assign(state())
        host.assign(state(epoch=2, version=1))
        host.assign(state(leader=1, epoch=3, version=2))
        host.assign(state(leader=2, epoch=4, version=3))
        host.assign(state(leader=-1, epoch=5, version=4))
        assert told == [(1, True), (2, True), (3, False)]
        assert host.told.followed == [("t", 0, 1), ("t", 0, 2)]
        assert partition.leader_id == -1
        host.assign(state(epoch=6, version=5))
        assert told[-1] == (6, True)
        late: list[Partition] = []
        host.replicas.subscribe_roles(lambda partition, led: late.append(partition))
        assert late == [partition], "who comes late is told what is led"

    play(tmp_path, story)


def test_who_learns_that_another_leads_stops_leading(tmp_path: Path) -> None:
    """As after a lost session: the controller's requests meanwhile were for this broker's earlier registration."""

    async def story(host: Host) -> None:
        told: list[tuple[int, bool]] = []
        partition, other = host.assign(state()), host.assign(state(index=1))
        host.replicas.subscribe_roles(lambda partition, led: told.append((partition.index, led)))
        told.clear()
        states = (State(0, (0, 1, 2), (1, 2), 1, 2), State(1, (0, 1, 2), (0, 1, 2), 0, 2))
        host.metadata.publish(host.metadata.image.with_topics(Topic("t", partition.topic_id, states, {})))
        assert (partition.led, other.led) == (False, True)
        assert told == [(0, False)]
        assert refusal(lambda: host.append(partition)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        host.assign(state(leader=1, epoch=2, version=1))
        assert host.told.followed == [("t", 0, 1)], "and follows when it is told to"

    play(tmp_path, story)


def test_what_is_older_is_refused(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state(epoch=5, version=7))
        assert refusal(lambda: host.assign(state(leader=1, epoch=4, version=9))) is ErrorCode.FENCED_LEADER_EPOCH
        assert refusal(lambda: host.assign(state(epoch=5, version=7))) is ErrorCode.FENCED_LEADER_EPOCH
        assert partition.led
        assert refusal(lambda: host.assign(state(replicas=(1, 2), epoch=6))) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refusal(lambda: host.assign(state(epoch=6), topic_id=b"?" * 16)) is ErrorCode.INCONSISTENT_TOPIC_ID

    play(tmp_path, story)


def test_a_newer_in_sync_set_of_the_same_epoch_is_taken(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        told: list[bool] = []
        host.replicas.subscribe_roles(lambda partition, led: told.append(led))
        partition = host.assign(state(isr=(0, 1)))
        host.append(partition, 2)
        host.clock.ms += 60_000
        host.assign(state(isr=(0,), version=1))
        assert partition.high == 2
        assert partition.followers is not None
        assert (partition.followers.isr, partition.version) == ((0,), 1)
        assert told == [True], "it is led as before"

    play(tmp_path, story)


def test_a_leader_goes_on_from_the_high_watermark_that_was_written_down(tmp_path: Path) -> None:
    async def before(host: Host) -> None:
        partition = host.assign(state())
        host.append(partition, 10)
        host.fetch(partition, 1, 4)
        host.fetch(partition, 2, 6)
        assert partition.high == 4

    async def after(host: Host) -> None:
        assert host.store.logs["t", 0].high == 4
        partition = host.assign(state(epoch=2, version=1), new=False)
        assert (partition.high, partition.log.end) == (4, 10)

    play(tmp_path, before)
    play(tmp_path, after)


def test_a_new_follower_takes_its_epochs_from_the_records(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state(leader=1, epoch=9))
        assert partition.log.latest_epoch == -1
        assert partition.high == 0

    play(tmp_path, story)


def test_a_topic_may_be_given_an_id_later(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        none, given = bytes(16), b"i" * 16
        partition = host.assign(state(), topic_id=none)
        host.assign(state(epoch=2, version=1), topic_id=given)
        assert host.replicas.require_led_by_id(given, 0) is partition
        assert partition.log.topic_id == given
        host.assign(state(epoch=3, version=2), topic_id=none)
        assert partition.topic_id == given, "an old request does not take it away"

    async def later(host: Host) -> None:
        assert host.assign(state(epoch=4), topic_id=bytes(16), new=False).topic_id == b"i" * 16

    play(tmp_path, story)
    play(tmp_path, later)


def test_stopping_keeps_the_log_and_deleting_removes_it(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        told: list[bool] = []
        partition = host.assign(state(epoch=3))
        host.replicas.subscribe_roles(lambda partition, led: told.append(led))
        host.append(partition)
        future = partition.wait_for_commit(1)
        assert refusal(lambda: host.replicas.stop("t", 0, delete=True, epoch=2)) is ErrorCode.FENCED_LEADER_EPOCH
        host.replicas.stop("t", 0, delete=False, epoch=3)
        assert told == [True, False]
        assert future is not None
        assert future.exception() is not None
        assert ("t", 0) in host.store.logs
        host.replicas.stop("t", 0, delete=True, epoch=-2)
        assert ("t", 0) not in host.store.logs
        assert refusal(lambda: host.replicas.require_hosted("t", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        host.replicas.stop("t", 0, delete=True)
        again = host.assign(state(epoch=1), topic_id=b"n" * 16)
        assert (again.log.end, again.epoch) == (0, 1), "a name that comes back starts from nothing"

    play(tmp_path, story)


def test_what_was_stopped_may_be_assigned_again_as_it_was(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        host.assign(state(leader=1, epoch=3, version=7))
        host.replicas.stop("t", 0, delete=False, epoch=3)
        host.assign(state(leader=1, epoch=3, version=7))
        assert host.told.followed == [("t", 0, 1), ("t", 0, 1)]

    play(tmp_path, story)


def test_a_log_that_is_offline_is_said_whatever_the_epoch(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        host.assign(state(epoch=3, version=7))
        (directory,) = host.store.directories
        directory.fail(OSError(5, "broken"))
        assert refusal(lambda: host.assign(state(epoch=3, version=7))) is ErrorCode.KAFKA_STORAGE_ERROR

    play(tmp_path, story)


def test_brokers_that_come_or_go_are_a_reason_to_look(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        before = host.told.looked
        host.metadata.publish(cluster(0, 1))
        assert host.told.looked == before + 1
        host.metadata.publish(host.metadata.image._replace(controller_id=1))
        assert host.told.looked == before + 1

    play(tmp_path, story)


def test_a_log_that_nobody_asked_for_can_be_deleted(tmp_path: Path) -> None:
    async def before(host: Host) -> None:
        host.assign(state())

    async def after(host: Host) -> None:
        host.replicas.stop("t", 0, delete=True)
        assert not host.store.logs

    play(tmp_path, before)
    play(tmp_path, after)


def test_a_partition_that_may_be_in_an_offline_directory_is_not_begun_anew(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        (directory,) = host.store.directories
        directory.fail(OSError(5, "broken"))
        assert refusal(lambda: host.assign(state(), new=False)) is ErrorCode.KAFKA_STORAGE_ERROR
        assert refusal(lambda: host.replicas.require_led("t", 0)) is ErrorCode.KAFKA_STORAGE_ERROR
        assert host.replicas.offline() == {("t", 0)}

    play(tmp_path, story)


def test_topic_configs_reach_the_logs(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state())
        parts = (state(),)
        image = cluster(0, 1, 2).with_topics(Topic("t", partition.topic_id, parts, {"min.insync.replicas": "3"}))
        host.metadata.publish(image)
        assert partition.log.config.min_insync_replicas == 3
        host.metadata.publish(image.without_topics("t"))
        assert host.replicas.require_led("t", 0) is partition, "only the controller says stop"
        await asyncio.sleep(0)

    play(tmp_path, story)
