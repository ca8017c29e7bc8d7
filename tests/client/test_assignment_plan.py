"""Proposals for reassignments: what every one of them keeps, in many worlds, and a few by name."""

from collections import Counter
from random import Random

import pytest

from ottla.client.assignment_plan import changes, propose
from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed


def topic(count: int, *replicas: tuple[int, ...], name: str = "orders") -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition(name, index): replicas[index % len(replicas)] for index in range(count)}


def racks(*nodes: int, names: str = "") -> dict[int, str | None]:
    return {node: names[place] if names else None for place, node in enumerate(nodes)}


def held(plan: dict[TopicPartition, tuple[int, ...]]) -> Counter[int]:
    return Counter(node for nodes in plan.values() for node in nodes)


def test_what_is_even_already_stays_as_it_is() -> None:
    current = topic(6, (1, 2), (2, 3), (3, 1))
    assert propose(current, racks(1, 2, 3), balance=True) == current


def test_a_new_broker_gets_its_share_with_the_fewest_moves() -> None:
    current = topic(12, (1, 2), (2, 3), (3, 1))
    plan = propose(current, racks(1, 2, 3, 4), balance=True)
    assert held(plan) == {1: 6, 2: 6, 3: 6, 4: 6}
    assert sum(len(change.adding) for change in changes(current, plan)) == 6


def test_a_drained_broker_keeps_nothing_and_the_others_keep_theirs() -> None:
    current = topic(9, (1, 2), (2, 3), (3, 1))
    plan = propose(current, racks(1, 2, 3), leaving={3})
    assert held(plan) == {1: 9, 2: 9}
    assert all(not set(change.removing) - {3} for change in changes(current, plan))


def test_the_number_of_copies_goes_up_and_down() -> None:
    current = topic(6, (1,), (2,), (3,))
    three = propose(current, racks(1, 2, 3, 4), copies=3)
    assert {len(nodes) for nodes in three.values()} == {3}
    assert max(held(three).values()) - min(held(three).values()) <= 1
    one = propose(three, racks(1, 2, 3, 4), copies=1)
    assert {len(nodes) for nodes in one.values()} == {1}
    assert all(one[where][0] == three[where][0] for where in one), "the leader stays"


def test_copies_that_share_a_rack_are_parted() -> None:
    current = topic(4, (1, 2))
    plan = propose(current, racks(1, 2, 3, 4, names="aabb"), balance=True)
    assert all(len({"aabb"[node - 1] for node in nodes}) == 2 for nodes in plan.values())


def test_small_partitions_are_moved_rather_than_large_ones() -> None:
    current = topic(4, (1,))
    sizes = {where: 1000 - where.partition for where in current}
    moved = changes(current, propose(current, racks(1, 2), balance=True, sizes=sizes), sizes)
    assert [change.where.partition for change in moved] == [2, 3]
    assert sum(change.bytes for change in moved) == 998 + 997


def test_copies_of_brokers_that_are_gone_come_to_others() -> None:
    plan = propose(topic(3, (1, 9)), racks(1, 2, 3))
    assert all(9 not in nodes and len(nodes) == 2 for nodes in plan.values())


def test_more_copies_than_brokers_are_refused() -> None:
    with pytest.raises(Failed, match="3 copies need 3 brokers, and 2"):
        propose(topic(1, (1,)), racks(1, 2), copies=3)


@pytest.mark.parametrize("seed", range(100))
def test_every_proposal_is_whole_and_even(seed: int) -> None:
    random = Random(seed)
    nodes = list(range(1, random.randrange(3, 9)))
    named = random.random() < 0.5
    brokers = {node: random.choice("abc") if named else None for node in nodes}
    copies = random.randrange(1, len(nodes))
    current = {TopicPartition(f"t{index % 5}", index // 5): tuple(random.sample(nodes, copies)) for index in range(60)}
    leaving = set(random.sample(nodes, random.choice([0, 0, 1])))
    plan = propose(current, brokers, leaving=leaving, balance=True)
    assert plan.keys() == current.keys()
    usable = [node for node in nodes if node not in leaving]
    for where, replicas in plan.items():
        assert len(set(replicas)) == len(replicas) == len(current[where])
        assert not set(replicas) & leaving
        if named:
            there = {brokers[node] for node in usable}
            assert len({brokers[node] for node in replicas}) == min(len(replicas), len(there))
    if not named:
        counts = [held(plan)[node] for node in usable]
        assert max(counts) - min(counts) <= 1
    assert propose(plan, brokers, leaving=leaving, balance=True) == plan, "a second one changes nothing"
