"""In-sync sets: which changes are proposed, the effect of a response, and what happens until it arrives."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from replica.cluster import World, append, play
from waiting import until

from ottla.cluster.image import Partition as State
from ottla.errors import ErrorCode
from ottla.wire.messages.peers import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)

if TYPE_CHECKING:
    from pathlib import Path

SHORT_LAG = {"replica.lag.time.max.ms": "400"}  # longer than a busy machine blocks the loop


class Controller:
    """Accepts every proposal, unless the test set another error code."""

    def __init__(self, world: World) -> None:
        self.asked: list[tuple[tuple[int, ...], int, int]] = []  # set, leader epoch, version
        self.codes: list[ErrorCode] = []  # of the next answers
        self.refusals: list[ErrorCode] = []  # of the next requests as a whole
        world.answers[AlterPartitionRequest] = self.answer

    def answer(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        response = AlterPartitionResponse(error_code=self.refusals.pop(0) if self.refusals else 0, topics=[])
        for topic in request.topics:
            told = []
            for one in topic.partitions:
                isr = tuple(state.broker_id for state in one.new_isr_with_epochs) or tuple(one.new_isr)
                self.asked.append((isr, one.leader_epoch, one.partition_epoch))
                told.append(
                    AlterPartitionResponsePartitionData(
                        partition_index=one.partition_index,
                        error_code=self.codes.pop(0) if self.codes else 0,
                        leader_id=0,
                        leader_epoch=one.leader_epoch,
                        isr=list(isr),
                        partition_epoch=one.partition_epoch + 1,
                    )
                )
            response.topics.append(
                AlterPartitionResponseTopicData(topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=told)
            )
        return response


@pytest.mark.parametrize("topic_id", [b"i" * 16, bytes(16)])
def test_a_follower_that_has_caught_up_joins(tmp_path: Path, topic_id: bytes) -> None:
    async def story(world: World) -> None:
        controller = Controller(world)
        partition = world.lead(0, isr=(0,), topic_id=topic_id)
        append(partition, 3)
        followers = partition.followers
        assert followers is not None
        await until(lambda: set(followers.isr) == {0, 1, 2})
        assert partition.version == followers.version > 1
        assert {epoch for _, epoch, _ in controller.asked} == {1}
        request, version = world.requests(AlterPartitionRequest)[0]
        assert version == (3 if any(topic_id) else 1)
        assert (request.broker_id, request.broker_epoch) == (0, 100)
        if version == 3:
            lives = {one.broker_id: one.broker_epoch for one in request.topics[0].partitions[0].new_isr_with_epochs}
            joined = next(one for one in lives if one != 0)
            assert lives[joined] == 100 + joined, "the life in which it fetched"

    play(tmp_path, story)


def test_a_follower_that_is_silent_leaves_and_what_waited_is_committed(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        controller = Controller(world)
        partition = world.lead(0)
        append(partition)
        await until(lambda: partition.high == 1)
        world.down.add(2)
        append(partition)
        waited = partition.wait_for_commit(2)
        assert waited is not None
        await asyncio.wait_for(waited, 60)
        assert 2 not in controller.asked[-1][0], controller.asked

    play(tmp_path, story, **SHORT_LAG)


def test_what_is_not_answered_is_asked_again(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        controller = Controller(world)
        controller.refusals = [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH]
        controller.codes = [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR]
        partition = world.lead(0, isr=(0,))
        followers = partition.followers
        assert followers is not None
        await until(lambda: set(followers.isr) == {0, 1})
        assert len(controller.asked) >= 4
        assert len(set(controller.asked)) == 1, "the same, until it was answered"

    play(tmp_path, story, ids=(0, 1))


def test_a_controller_that_was_replaced_is_not_waited_for(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        controller, metadata = Controller(world), world[0].metadata
        world.silent = {2}  # it was paused while it was controller
        metadata.publish(metadata.image._replace(controller_id=2))
        partition = world.lead(0, isr=(0,))
        followers = partition.followers
        assert followers is not None
        await until(lambda: bool(world.requests(AlterPartitionRequest)))
        metadata.publish(metadata.image._replace(controller_id=1))
        await until(lambda: set(followers.isr) == {0, 1, 2})
        assert controller.asked

    play(tmp_path, story)


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_what_is_refused_is_given_up_and_may_be_proposed_again(tmp_path: Path, code: ErrorCode) -> None:
    async def story(world: World) -> None:
        controller = Controller(world)
        controller.codes = [code]
        partition = world.lead(0, isr=(0,))
        followers = partition.followers
        assert followers is not None
        await until(lambda: set(followers.isr) == {0, 1})
        assert len(controller.asked) >= 2

    play(tmp_path, story, ids=(0, 1))


@pytest.mark.parametrize("code", [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH])
def test_what_is_out_of_date_waits_for_the_truth(tmp_path: Path, code: ErrorCode) -> None:
    async def story(world: World) -> None:
        controller = Controller(world)
        controller.codes = [code]
        partition = world.lead(0, isr=(0,))
        followers = partition.followers
        assert followers is not None
        await until(lambda: bool(controller.asked))
        await asyncio.sleep(0.2)
        assert len(controller.asked) == 1
        assert followers.maximal == {0, 1}, "it may have been taken up"
        world[0].assign(State(0, (0, 1), (0,), 0, 1, 5))
        await until(lambda: set(followers.isr) == {0, 1})
        assert controller.asked[-1] == ((0, 1), 1, 5)

    play(tmp_path, story, ids=(0, 1))


def test_a_controller_that_keeps_no_topic_ids_is_asked_by_name(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        controller = Controller(world)
        controller.codes = [ErrorCode.UNKNOWN_TOPIC_ID]
        partition = world.lead(0, isr=(0,))
        followers = partition.followers
        assert followers is not None
        await until(lambda: set(followers.isr) == {0, 1})
        assert [version for _, version in world.requests(AlterPartitionRequest)[:2]] == [3, 1]
        assert world.requests(AlterPartitionRequest)[1][0].topics[0].topic_name == partition.topic

    play(tmp_path, story, ids=(0, 1))


def test_a_topic_that_the_controller_does_not_know_by_name_either_waits_for_the_truth(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        controller = Controller(world)
        controller.codes = [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        world.lead(0, isr=(0,))
        await until(lambda: len(controller.asked) == 2)
        await asyncio.sleep(0.2)
        assert len(controller.asked) == 2

    play(tmp_path, story, ids=(0, 1))


def test_a_leader_without_a_controller_acknowledges_nothing_that_its_followers_do_not_have(tmp_path: Path) -> None:
    """It may have lost its session, and a follower may be leader by now."""

    async def story(world: World) -> None:
        Controller(world)  # on a busy machine slow followers leave the in-sync set and rejoin
        partition = world.lead(0)
        append(partition)
        followers = partition.followers
        assert followers is not None
        await until(lambda: partition.high == 1 and set(followers.isr) == {0, 1, 2} and followers.proposal is None)
        world[0].metadata.publish(world[0].metadata.image._replace(controller_id=-1))
        other = world[1].assign(State(0, (0, 1, 2), (1, 2), 1, 2, 2))  # elected: 0 does not learn of it
        world[2].assign(State(0, (0, 1, 2), (1, 2), 1, 2, 2))
        append(partition)
        waited = partition.wait_for_commit(2)
        assert waited is not None
        await asyncio.sleep(1)  # longer than a follower may lag
        assert not waited.done()
        assert partition.high == 1
        append(other, size=50)
        await until(lambda: other.high == 2)
        world[0].assign(State(0, (0, 1, 2), (1, 2), 1, 2, 2))
        assert waited.exception() is not None, "and says so when it hears of it"
        await until(lambda: world[0].log().end == 2 and world[0].log().high == 2)

    play(tmp_path, story, **SHORT_LAG)


def test_a_proposal_of_an_epoch_that_is_over_is_not_sent(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        answers: list[Any] = []
        world.down.add(0)
        partition = world.lead(1, isr=(1,))
        followers = partition.followers
        assert followers is not None
        world.answers[AlterPartitionRequest] = answers.append
        partition.note_fetch(2, 0, 0, -1, epoch_known=True)
        assert followers.proposal is not None
        await asyncio.sleep(0.05)
        world[1].assign(State(0, (0, 1, 2), (2,), 2, 2, 2))
        world.down.clear()
        await asyncio.sleep(0.2)
        assert not answers

    play(tmp_path, story)
