"""Replica assignment: Apache Kafka's results, and invariants of every result."""

from collections import Counter
from pathlib import Path
from random import Random

import judge
import pytest

from ottla.cluster.placement import alternate_racks, assign
from ottla.errors import BrokerError, ErrorCode


def test_partition_i_starts_on_broker_i_and_replicas_follow() -> None:
    assert assign({0: None, 1: None, 2: None}, 3, 2) == [(0, 1), (1, 2), (2, 0)]


def test_one_broker_holds_everything() -> None:
    assert assign({7: None}, 3, 1, shift=5, gap=9) == [(7,), (7,), (7,)]


def test_racks_alternate() -> None:
    assert alternate_racks({1: "a", 2: "a", 3: "a", 4: "b", 5: "b", 6: "c"}) == [1, 4, 6, 2, 5, 3]


def cases(count: int) -> list[tuple[dict[int, str | None], int, int, int, int]]:
    random, found = Random(4), []
    for _ in range(count):
        ids = sorted(random.sample(range(100), random.randrange(1, 9)))
        racks = [random.choice("abc") if random.random() < 0.99 else None for _ in ids]
        if random.random() < 0.4:
            racks = [None for _ in ids]
        elif None in racks:
            continue  # Kafka's function requires racks for all brokers or none
        partitions, replicas = random.randrange(1, 25), random.randrange(1, len(ids) + 1)
        found.append(
            (dict(zip(ids, racks, strict=True)), partitions, replicas, random.randrange(9), random.randrange(5))
        )
    return found


def test_the_answers_are_kafkas() -> None:
    wanted = cases(120)
    arguments = [";".join([described(brokers), *map(str, numbers)]) for brokers, *numbers in wanted]
    source = Path(__file__).parent / "Assignment.java"
    lines = judge.java(source, *arguments, version=judge.ZOOKEEPER).out.splitlines()
    for (brokers, partitions, replicas, start, first), line in zip(wanted, lines, strict=True):
        ours = assign(brokers, partitions, replicas, shift=start, gap=start, first=first)
        assert " ".join(str(list(one)) for one in ours) == line


def described(brokers: dict[int, str | None]) -> str:
    return ",".join(f"{broker}:{rack or ''}" for broker, rack in brokers.items())


@pytest.mark.parametrize("seed", range(100))
def test_replicas_are_different_brokers_on_as_many_racks_as_there_are(seed: int) -> None:
    random = Random(seed)
    brokers: dict[int, str | None] = {broker: random.choice("abcd") for broker in range(random.randrange(1, 12))}
    replicas = random.randrange(1, len(brokers) + 1)
    assignment = assign(brokers, 40, replicas, shift=random.randrange(99), gap=random.randrange(99))
    for one in assignment:
        assert len(set(one)) == replicas
        assert len({brokers[broker] for broker in one}) == min(replicas, len(set(brokers.values())))
    leaders = Counter(one[0] for one in assignment)
    assert max(leaders.values()) - min(leaders[broker] for broker in brokers) <= 1, "leaders are spread evenly"


@pytest.mark.parametrize(
    ("partitions", "replicas", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 2, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_the_impossible_has_kafkas_code(partitions: int, replicas: int, code: ErrorCode) -> None:
    with pytest.raises(BrokerError) as raised:
        assign({1: None}, partitions, replicas)
    assert raised.value.code is code
