"""Plans of replicas: what every plan must keep, on many random clusters, and the cases people ask for by name."""

import random
from collections import Counter

import pytest

from ottla.client.placement import Place, PlacementError, Replicas, changes, propose

SEEDS = 200


def spread(topics: int, partitions: int, brokers: list[int], replicas: int) -> dict[Place, Replicas]:
    return {
        (f"t{topic}", index): tuple(brokers[(topic + index + step) % len(brokers)] for step in range(replicas))
        for topic in range(topics)
        for index in range(partitions)
    }


def counts(plan: dict[Place, Replicas]) -> Counter[int]:
    return Counter(broker for replicas in plan.values() for broker in replicas)


def test_what_is_even_already_stays() -> None:
    current = spread(4, 6, [1, 2, 3], 2)
    assert changes(current, propose(current, dict.fromkeys([1, 2, 3]))) == []


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    current = spread(4, 6, [1, 2, 3], 2)
    plan = propose(current, dict.fromkeys([1, 2, 3, 4]))
    assert sorted(counts(plan).values()) == [12, 12, 12, 12]
    moved = changes(current, plan)
    assert sum(len(change.added) for change in moved) == 12
    assert {broker for change in moved for broker in change.added} == {4}


def test_a_drained_broker_has_nothing_left_and_only_its_replicas_move() -> None:
    current = spread(4, 6, [1, 2, 3], 2)
    plan = propose(current, dict.fromkeys([1, 2]))
    assert counts(plan)[3] == 0
    assert sum(len(change.added) for change in changes(current, plan)) == counts(current)[3]


def test_the_replication_factor_grows_and_shrinks() -> None:
    current = spread(2, 6, [1, 2, 3], 1)
    grown = propose(current, dict.fromkeys([1, 2, 3]), replicas=3)
    assert all(sorted(replicas) == [1, 2, 3] for replicas in grown.values())
    assert all(not change.removed for change in changes(current, grown))
    shrunk = propose(grown, dict.fromkeys([1, 2, 3]), replicas=1)
    assert sorted(counts(shrunk).values()) == [4, 4, 4]
    assert all(not change.added for change in changes(grown, shrunk))


def test_replicas_go_to_racks_of_their_own() -> None:
    current: dict[Place, Replicas] = {("t", index): (1, 2) for index in range(8)}
    plan = propose(current, {1: "a", 2: "a", 3: "b", 4: "b"})
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    assert all(len({racks[broker] for broker in replicas}) == 2 for replicas in plan.values())


def test_leaders_are_even_too() -> None:
    current: dict[Place, Replicas] = {("t", index): (1, 2, 3) for index in range(9)}
    plan = propose(current, dict.fromkeys([1, 2, 3]))
    assert Counter(replicas[0] for replicas in plan.values()) == {1: 3, 2: 3, 3: 3}
    assert all(change.bytes_to_copy == 0 for change in changes(current, plan, dict.fromkeys(current, 100)))


def test_small_partitions_are_moved_rather_than_large_ones() -> None:
    current: dict[Place, Replicas] = {("t", index): (1,) for index in range(4)}
    sizes = {("t", 0): 1000, ("t", 1): 10, ("t", 2): 1, ("t", 3): 5000}
    plan = propose(current, dict.fromkeys([1, 2]), sizes=sizes)
    moved = changes(current, plan, sizes)
    assert {change.place[1] for change in moved if change.added} == {1, 2}
    assert sum(change.bytes_to_copy for change in moved) == 11


def test_without_spreading_only_what_must_move_moves() -> None:
    current: dict[Place, Replicas] = {("t", index): (1, 9) for index in range(4)}
    plan = propose(current, dict.fromkeys([1, 2, 3]), spread=False)
    assert all(replicas[0] == 1 for replicas in plan.values())
    assert counts(plan)[9] == 0


@pytest.mark.parametrize(
    ("brokers", "replicas", "reason"),
    [({}, None, "no broker is left"), ({1: None}, 2, "need 2 brokers"), ({1: None}, 0, "at least one replica")],
)
def test_what_cannot_be_is_refused(brokers: dict[int, str | None], replicas: int | None, reason: str) -> None:
    with pytest.raises(PlacementError, match=reason):
        propose({("t", 0): (1,)}, brokers, replicas=replicas)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_plan_is_valid_even_and_the_same_twice(seed: int) -> None:
    chance = random.Random(seed)
    before = list(range(chance.randint(1, 8)))
    after = chance.sample(range(12), chance.randint(1, 8))
    rack_count = chance.randint(1, 4)
    brokers = {broker: chance.choice([None, f"r{broker % rack_count}"]) for broker in after}
    current: dict[Place, Replicas] = {
        ("t", index): tuple(chance.sample(before, min(len(before), chance.randint(1, 3)))) for index in range(40)
    }
    replicas = chance.randint(1, len(after)) if max(map(len, current.values())) > len(after) else None
    plan = propose(current, brokers, replicas=replicas)
    assert plan == propose(dict(reversed(current.items())), dict(reversed(brokers.items())), replicas=replicas)
    for place, here in plan.items():
        assert len(here) == len(set(here)) == (replicas or len(current[place]))
        assert set(here) <= set(after)
    if len({rack or broker for broker, rack in brokers.items()}) == len(after):  # racks do not bind
        shares = [counts(plan)[broker] for broker in after]
        assert max(shares) - min(shares) <= 1


def test_a_large_cluster_is_planned_by_few_steps() -> None:
    current = spread(100, 100, list(range(30)), 3)
    plan = propose(current, dict.fromkeys(range(33)))
    shares = counts(plan)
    assert max(shares.values()) - min(shares.values()) <= 1
