"""What is lost when brokers die, and what is not: acknowledgements, in-sync replicas, elections, orders of return."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from scenarios import raw
from waiting import wait_until

from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from scenarios.stage import Stage

NOBODY = None


def write_behind_their_backs(stage: Stage, topic: str, acks: int) -> list[int]:
    """Broker 1 leads and its followers stand still: what it answers to ten records, and then it dies.

    A fetch of the followers may be on its way, so that they have the first record when they go on.
    """
    leader = stage.broker(1)
    for number in (2, 3):
        stage.cluster.pause(number)
    try:
        if acks == 1:
            codes = [raw.produce(leader, topic, f"late {count}", acks).error_code for count in range(10)]
        else:
            leader.send(raw.produce_request(topic, "late 0", acks), newest=raw.BY_NAME)
            leader.send(raw.produce_request(topic, "late 1", acks), newest=raw.BY_NAME)
            codes = []
        stage.kill(1)
    finally:
        for number in (2, 3):
            stage.cluster.resume(number)
    return codes


def test_acks_1_loses_what_was_not_replicated(stage: Stage) -> None:
    """And says so to nobody: the records were acknowledged, and are gone. That is what acks=1 means."""
    topic = stage.topic([1, 2, 3])
    kept = stage.write(topic, range(20))
    codes = write_behind_their_backs(stage, topic, acks=1)
    assert codes == [ErrorCode.NONE] * 10
    stage.led_by(topic, 0, lambda leader: leader in (2, 3))
    found = stage.read(topic)
    assert found[:20] == kept
    assert found[20:] in ([], ["late 0"]), "more was replicated than could be"
    stage.cluster.start(1)
    stage.in_sync(topic, 0, (1, 2, 3))
    stage.identical(topic)
    assert stage.read(topic) == found, "the former leader has not given up what only it had"


def test_acks_all_does_not_lose(stage: Stage) -> None:
    topic = stage.topic([1, 2, 3])
    kept = stage.write(topic, range(20))
    write_behind_their_backs(stage, topic, acks=-1)
    stage.led_by(topic, 0, lambda leader: leader in (2, 3))
    kept += stage.write(topic, range(20, 30))
    stage.cluster.start(1)
    stage.in_sync(topic, 0, (1, 2, 3))
    found = stage.read(topic)
    assert [value for value in found if not value.startswith("late")] == kept
    stage.identical(topic)


@pytest.mark.parametrize("first", ["the last leader first", "the last leader last"])
def test_an_isr_of_two_loses_one_then_the_other(stage: Stage, first: str) -> None:
    """Only the last one in sync may lead again: the other one alone is not enough, and nothing is lost."""
    topic = stage.topic([1, 2])
    kept = stage.write(topic, range(10))
    stage.kill(1)
    stage.in_sync(topic, 0, (2,))
    kept += stage.write(topic, range(10, 20))
    stage.kill(2)
    stage.led_by(topic, 0, lambda leader: leader is NOBODY)
    order = (2, 1) if first == "the last leader first" else (1, 2)
    stage.cluster.start(order[0])
    if order[0] == 1:
        wait_until(lambda: 1 in stage.registered())
        assert stage.cluster.leader(topic, 0) is NOBODY, "it was not in sync"
        assert raw.produce(stage.broker(1), topic, "x").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    stage.cluster.start(order[1])
    stage.in_sync(topic, 0, (1, 2))
    assert stage.cluster.leader(topic, 0) == 2
    assert stage.read(topic) == kept
    stage.identical(topic)


def test_unclean_election_off_waits_and_on_goes_on_with_less(stage: Stage) -> None:
    """Broker 2 falls behind, then broker 1 dies too, and 2 is back: three topics that see it differently."""
    off, on = stage.topic([1, 2]), stage.topic([1, 2], unclean_leader_election_enable="true")
    later = stage.topic([1, 2])
    topics = (off, on, later)
    everything = {topic: stage.write(topic, range(10)) for topic in topics}
    both = [str(count) for count in range(10)]
    stage.kill(2)
    for topic in topics:
        stage.in_sync(topic, 0, (1,))
        everything[topic] += stage.write(topic, range(10, 20))
    stage.kill(1)
    for topic in topics:
        stage.led_by(topic, 0, lambda leader: leader is NOBODY)
    stage.cluster.start(2)
    stage.led_by(on, 0, lambda leader: leader == 2)
    assert stage.read(on) == both, "what only the dead broker had is lost"
    assert [stage.cluster.leader(topic, 0) for topic in (off, later)] == [NOBODY, NOBODY]
    stage.set_config(later, "unclean.leader.election.enable", "true")
    stage.led_by(later, 0, lambda leader: leader == 2)
    assert stage.read(later) == both
    assert stage.cluster.leader(off, 0) is NOBODY
    new = stage.write(on, ("new",))
    stage.cluster.start(1)
    for topic in topics:
        stage.in_sync(topic, 0, (1, 2))
        stage.identical(topic)
    assert stage.read(off) == everything[off], "who waits loses nothing"
    assert stage.read(on) == both + new


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_all_brokers_end_and_return_in_any_order(stage: Stage, end: str) -> None:
    """A partition for each order of replicas: killed leaders return first, second and last.

    Of brokers that are stopped in good order, the last one leads everything in the end, and returns last.
    """
    orders = list(itertools.permutations((1, 2, 3)))
    topic = stage.topic(*orders)
    kept = [stage.write(topic, range(10), partition=index) for index in range(len(orders))]
    for number in (2, 1, 3):
        (stage.kill if end == "killed" else stage.cluster.stop)(number)
    for number in (1, 2, 3):
        stage.cluster.start(number)
    for index in range(len(orders)):
        stage.in_sync(topic, index, (1, 2, 3))
        assert stage.read(topic, partition=index) == kept[index]
        kept[index] += stage.write(topic, ("after",), partition=index)
        assert stage.read(topic, partition=index) == kept[index]
        stage.identical(topic, index)


def test_min_insync_replicas_refuses_writes_while_reads_go_on(stage: Stage) -> None:
    topic = stage.topic([1, 2], min_insync_replicas="2")
    kept = stage.write(topic, range(10))
    stage.kill(2)
    stage.in_sync(topic, 0, (1,))
    leader = stage.broker(1)
    wait_until(lambda: raw.produce(leader, topic, "x").error_code == ErrorCode.NOT_ENOUGH_REPLICAS)
    assert stage.read(topic)[:10] == kept
    end = raw.list_offset(leader, topic).offset
    assert raw.produce(leader, topic, "with acks=1", acks=1).error_code == ErrorCode.NONE, "who does not ask is served"
    assert raw.produce(leader, topic, "x").error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert raw.list_offset(leader, topic).offset == end + 1, "a refused write leaves nothing"
    stage.cluster.start(2)
    stage.in_sync(topic, 0, (1, 2))
    stage.write(topic, ("again",))
    stage.identical(topic)


def test_a_leader_that_slept_does_not_acknowledge(stage: Stage) -> None:
    """Broker 1 stands still beyond its session, and finds a write in its socket when it goes on."""
    topic = stage.topic([1, 2, 3])
    kept = stage.write(topic, range(10))
    sleeper = stage.broker(1)
    stage.cluster.pause(1)
    for count in range(5):
        sleeper.send(raw.produce_request(topic, f"asleep {count}", acks=-1), newest=raw.BY_NAME, wait_s=120)
    stage.led_by(topic, 0, lambda leader: leader in (2, 3))
    kept += stage.write(topic, range(10, 20))
    stage.cluster.resume(1)
    codes = [raw.taken(sleeper).error_code for _ in range(5)]
    assert ErrorCode.NONE not in codes, "two leaders have acknowledged"
    wait_until(
        lambda: raw.produce(stage.broker(1), topic, "x", acks=1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "the former leader knows that it leads no more",
    )
    stage.in_sync(topic, 0, (1, 2, 3))
    assert stage.read(topic) == kept
    stage.identical(topic)
