"""A mapping with versions: old versions do not change, and a new one costs only what differs."""

from random import Random

import pytest

from ottla.cluster.versioned import Versioned


@pytest.mark.parametrize("seed", range(50))
def test_every_version_stays_what_it_was(seed: int) -> None:
    random = Random(seed)
    first: Versioned[int, int] = Versioned()
    versions: list[tuple[Versioned[int, int], dict[int, int]]] = [(first, {})]
    for step in range(60):
        # Mostly the newest is changed; sometimes an older one, which begins a branch.
        version, model = versions[-1] if random.random() < 0.9 else random.choice(versions)
        gone = random.sample(sorted(model), min(len(model), random.randrange(3)))
        put = {random.randrange(20): step for _ in range(random.randrange(4))}
        after = {key: value for key, value in model.items() if key not in gone} | put
        versions.append((version.change(put, gone), after))
        older, old_model = random.choice(versions)
        changed = versions[-1][0].keys_changed_since(older)
        assert {key for key in {**after, **old_model} if after.get(key) != old_model.get(key)} <= changed
    for version, model in versions:
        assert dict(version) == model == version
        assert len(version) == len(model)
        assert sorted(version) == sorted(model)
        assert [version.get(key) for key in range(20)] == [model.get(key) for key in range(20)]
        assert all((key in version) == (key in model) for key in range(20))
    numbers = [version.version for version, _ in versions]
    assert len(set(numbers)) == len(numbers)


def test_going_through_a_version_is_not_disturbed_by_a_change() -> None:
    version = Versioned({"a": 1, "b": 2})
    seen = []
    for name in version:
        seen.append((name, version[name]))
        version.change({"c": 3, "b": 9})
    assert seen == [("a", 1), ("b", 2)]


def test_a_key_that_came_is_told_from_one_that_changed() -> None:
    first = Versioned({"a": 1})
    second = first.change({"a": 2})
    third = second.change({"b": 1})
    fourth = third.change({}, ["a"])
    assert first.grown == second.grown < third.grown == fourth.grown == third.version


def test_a_key_may_go_and_come_back_in_one_change() -> None:
    first = Versioned({"a": 1})
    second = first.change({"a": 2}, ["a"])
    assert (dict(first), dict(second)) == ({"a": 1}, {"a": 2})


def test_a_missing_key() -> None:
    with pytest.raises(KeyError):
        Versioned({"a": 1}).change({}, ["a"])["a"]
    with pytest.raises(KeyError):
        Versioned().change({}, ["a"])
