"""The broker's assignors: their guarantees for random groups, and the same results as Apache Kafka's."""

from __future__ import annotations

from pathlib import Path
from random import Random

import judge
import pytest

from ottla.coord.groups.assignors import (
    ASSIGNORS,
    Assignment,
    MemberSpec,
    Sizes,
    Specs,
    range_assignor,
    uniform_assignor,
)

ASSIGN = Path(__file__).parent / "java" / "Assignors.java"


def topic(number: int) -> bytes:
    return number.to_bytes(16)


def spec(*topics: int, instance: str | None = None, part: dict[int, set[int]] | None = None) -> MemberSpec:
    return MemberSpec(instance, frozenset(map(topic, topics)), parts(part or {}))


def parts(plain: dict[int, set[int]]) -> Assignment:
    return {topic(number): frozenset(indexes) for number, indexes in plain.items()}


def a_group(random: Random) -> tuple[Specs, Sizes]:
    """Members with equal or different subscriptions, and assignments from an earlier state of the group."""
    sizes = {topic(number): random.randrange(1, 12) for number in range(1, random.randrange(2, 6))}
    common = frozenset(random.sample(sorted(sizes), random.randrange(1, len(sizes) + 1)))
    alike = random.random() < 0.5
    names = [f"member-{number}" for number in range(random.randrange(1, 8))]
    owned: dict[str, dict[bytes, set[int]]] = {name: {} for name in names}
    for name, size in sizes.items():
        for index in range(size):
            owner = random.choice([*names, None, None])
            if owner is not None:
                owned[owner].setdefault(name, set()).add(index)
    members = {
        name: MemberSpec(
            f"instance-{random.random()}" if random.random() < 0.3 else None,
            common if alike else frozenset(random.sample(sorted(sizes), random.randrange(0, len(sizes) + 1))),
            {key: frozenset(indexes) for key, indexes in owned[name].items()},
        )
        for name in names
    }
    return members, sizes


def flat(part: Assignment) -> set[tuple[bytes, int]]:
    return {(name, index) for name, indexes in part.items() for index in indexes}


def test_range_gives_each_member_a_run_of_every_topic() -> None:
    members = {"b": spec(1, 2), "a": spec(1, 2), "c": spec(2)}
    assert range_assignor(members, {topic(1): 5, topic(2): 3}) == {
        "a": parts({1: {0, 1, 2}, 2: {0}}),
        "b": parts({1: {3, 4}, 2: {1}}),
        "c": parts({2: {2}}),
    }


def test_range_serves_static_members_first_by_their_instance() -> None:
    members = {"z": spec(1, instance="one"), "a": spec(1), "y": spec(1, instance="two")}
    assert range_assignor(members, {topic(1): 3}) == {"z": parts({1: {0}}), "y": parts({1: {1}}), "a": parts({1: {2}})}


def test_a_new_member_gets_its_share_from_those_who_have_more() -> None:
    members = {"a": spec(1, part={1: {0, 1, 2}}), "b": spec(1, part={1: {3, 4, 5}}), "c": spec(1)}
    assert uniform_assignor(members, {topic(1): 6}) == {
        "a": parts({1: {0, 1}}),
        "b": parts({1: {3, 4}}),
        "c": parts({1: {2, 5}}),
    }


def test_members_of_different_minds_are_balanced() -> None:
    members = {"a": spec(1), "b": spec(1, 2, part={1: {0, 1, 2, 3}}), "c": spec(2)}
    made = uniform_assignor(members, {topic(1): 4, topic(2): 4})
    assert [len(flat(made[name])) for name in "abc"] == [2, 3, 3]


def test_nobody_gets_nothing() -> None:
    assert uniform_assignor({}, {}) == range_assignor({}, {}) == {}
    assert uniform_assignor({"a": spec()}, {topic(1): 3}) == {"a": {}}


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("seed", range(100))
def test_every_partition_has_one_owner_among_its_subscribers(name: str, seed: int) -> None:
    members, sizes = a_group(Random(seed))
    made = ASSIGNORS[name](members, sizes)
    assert made.keys() == members.keys()
    given = [(key, index) for part in made.values() for key, index in flat(part)]
    wanted = {key for one in members.values() for key in one.topics}
    assert sorted(given) == sorted((key, index) for key in wanted for index in range(sizes[key]))
    assert all(part.keys() <= members[member].topics for member, part in made.items())
    assert all(part[key] for part in made.values() for key in part), "no topic without partitions"


@pytest.mark.parametrize("seed", range(100))
def test_uniform_is_balanced_and_leaves_alone_what_is(seed: int) -> None:
    members, sizes = a_group(Random(seed))
    made = uniform_assignor(members, sizes)
    if len({one.topics for one in members.values()}) == 1:
        loads = [len(flat(part)) for part in made.values()]
        assert max(loads) - min(loads) <= 1
    again = {name: one._replace(part=made[name]) for name, one in members.items()}
    assert uniform_assignor(again, sizes) == made


def test_apache_kafka_assigns_the_same(tmp_path: Path) -> None:
    cases = [(name, *a_group(Random(seed))) for seed in range(150) for name in ASSIGNORS]
    lines: list[str] = []
    for name, members, sizes in cases:
        lines += [f"topic {int.from_bytes(key)} {size}" for key, size in sizes.items()]
        for member, one in members.items():
            topics = ",".join(str(int.from_bytes(key)) for key in one.topics) or "-"
            lines.append(f"member {member} {one.instance or '-'} {topics} {text_of(one.part)}")
        lines.append(f"assign {name}")
    (tmp_path / "cases").write_text("\n".join(lines))
    answers = judge.java(ASSIGN, str(tmp_path / "cases")).out.split("assigned\n")
    for (name, members, sizes), answer in zip(cases, answers[:-1], strict=True):
        made = ASSIGNORS[name](members, sizes)
        assert answer.splitlines() == [f"{member} {text_of(made[member])}" for member in members], (name, members)


def text_of(part: Assignment) -> str:
    return (
        ";".join(f"{int.from_bytes(key)}:{','.join(map(str, sorted(part[key])))}" for key in sorted(part) if part[key])
        or "-"
    )
