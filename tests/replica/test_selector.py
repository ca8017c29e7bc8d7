"""Which replica a consumer reads from: an in-sync one in its rack that has the offset, else the leader."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cluster.image import EMPTY, Broker, Image
from ottla.replica.selector import RACK_AWARE, choose_replica

LISTENER = "PLAINTEXT"


def make_image(**racks: str | None) -> Image:
    brokers = [Broker(int(name[1:]), {LISTENER: ("host", 9092)}, rack, 0) for name, rack in racks.items()]
    return EMPTY._replace(brokers={broker.id: broker for broker in brokers})


def make_partition(isr: tuple[int, ...], **spans: tuple[int, int]) -> Any:
    followers = {int(name[1:]): SimpleNamespace(start=start, end=end) for name, (start, end) in spans.items()}
    return SimpleNamespace(followers=SimpleNamespace(me=0, isr=isr, followers=followers))


IMAGE = make_image(b0="a", b1="b", b2="b", b3="c")


def choose(partition: Any, rack: str, offset: int = 5, image: Image = IMAGE, listener: str = LISTENER) -> int | None:
    return choose_replica(RACK_AWARE, partition, offset, rack, image, listener)


def test_the_leader_serves_its_own_rack_and_unknown_ones() -> None:
    partition = make_partition((0, 1), b1=(0, 9))
    assert choose(partition, "a") is None
    assert choose(partition, "z") is None
    assert choose(partition, "b") == 1


def test_of_several_the_one_with_most_records() -> None:
    assert choose(make_partition((0, 1, 2), b1=(0, 8), b2=(0, 9)), "b") == 2


@pytest.mark.parametrize("span", [(0, 4), (6, 9)])
def test_not_one_that_lacks_the_offset(span: tuple[int, int]) -> None:
    assert choose(make_partition((0, 1), b1=span), "b") is None


def test_not_one_out_of_sync_or_unknown_or_without_the_listener() -> None:
    assert choose(make_partition((0,), b1=(0, 9)), "b") is None
    assert choose(make_partition((0, 1), b1=(0, 9)), "b", image=make_image(b0="a")) is None
    assert choose(make_partition((0, 1), b1=(0, 9)), "b", listener="OTHER") is None


def test_only_with_the_rack_aware_selector_and_followers() -> None:
    assert choose_replica(None, make_partition((0, 1), b1=(0, 9)), 5, "b", IMAGE, LISTENER) is None
    assert choose(SimpleNamespace(followers=None), "b") is None
