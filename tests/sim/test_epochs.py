"""Leader epochs: a follower's fetch counts only in the epoch for which it was sent.

Between brokers with the protocol of Kafka 2.3, a fetch does not contain the epoch of the follower's last record. A
delayed fetch, sent before the follower had to truncate its log, is recognised only by the leader epoch in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sim.mutants import no_check_epoch, no_last_fetched_epoch
from sim.stage import TOPIC, Stage

from ottla.errors import ErrorCode
from ottla.sim.world import BrokenInvariant
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from pathlib import Path


async def fetch_late(stage: Stage, replica: int, offset: int, epoch: int) -> ErrorCode:
    """Deliver a fetch that a follower sent in this epoch."""
    address = stage.client.leader((TOPIC, 0))
    assert address is not None
    one = FetchPartition(
        partition=0, current_leader_epoch=epoch, fetch_offset=offset, log_start_offset=0, partition_max_bytes=1000
    )
    request = FetchRequest(
        replica_id=replica,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1000,
        topics=[FetchTopic(topic=TOPIC, partitions=[one])],
    )
    answer = await stage.client.ask(address, request, 11)
    return ErrorCode(answer.responses[0].partitions[0].error_code)


def tell_of_late_fetches(folder: Path) -> None:
    stage = Stage(folder, inter_broker_protocol_version="2.3")

    async def story() -> None:
        await stage.up(0, 1, 2)
        await stage.create()
        await stage.until(stage.leads(0, 0, 1, 2))
        await stage.down(2)  # the leader continues in a new epoch
        await stage.up(2)
        await stage.until(stage.leads(0, 0, 1, 2))
        await stage.produced("1", "2")
        before = stage.state().epoch - 1
        assert before >= 0
        stage.cut(0, 1)
        stage.cut(0, 2)
        assert await stage.produce("3", "4", acks=1) is ErrorCode.NONE
        codes = [await fetch_late(stage, replica, 4, epoch) for replica in (1, 2) for epoch in (before, before + 2)]
        assert await stage.read() == ["1", "2"], "nobody has the others"
        assert codes == [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH] * 2

    stage.play(story)


def test_a_fetch_of_another_epoch_counts_for_nothing(tmp_path: Path) -> None:
    tell_of_late_fetches(tmp_path)


def test_it_would_be_found_if_it_counted(tmp_path: Path) -> None:
    with no_check_epoch(), pytest.raises(BrokenInvariant, match="V4"):
        tell_of_late_fetches(tmp_path)


def tell_of_a_tail_that_parts(folder: Path) -> None:
    stage = Stage(folder)

    async def story() -> None:
        await stage.up(0, 1, 2)
        await stage.create()
        await stage.until(stage.leads(0, 0, 1, 2))
        await stage.produced("1")
        stage.cut(0, 1)
        stage.cut(0, 2)
        assert await stage.produce("lost", acks=1) is ErrorCode.NONE
        await stage.down(0)
        await stage.until(lambda: stage.state().leader in (1, 2))
        stage.world.network.heal()
        await stage.produced("2")
        await stage.produced("3")
        await stage.up(0)
        await stage.until(lambda: sorted(stage.state().isr) == [0, 1, 2])
        await stage.until(lambda: stage.values(0) == [b"1", b"2", b"3"])

    stage.play(story)


def test_a_tail_that_nobody_copied_is_cut_off(tmp_path: Path) -> None:
    tell_of_a_tail_that_parts(tmp_path)


def test_it_would_be_found_if_it_stayed(tmp_path: Path) -> None:
    with no_last_fetched_epoch(), pytest.raises(BrokenInvariant, match="V5"):
        tell_of_a_tail_that_parts(tmp_path)
