"""One more topic costs the same whether a hundred or thousands exist: counted in function calls, not in seconds."""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clock import SystemClock
from ottla.cluster.alterations import SET, OptionChange
from ottla.cluster.image import EVERY_BROKER, Topic
from ottla.cluster.metadata import Metadata
from ottla.cluster.plans import NewTopic
from ottla.cluster.sqlite_store import MEMORY, SqliteStore
from ottla.cluster.standalone import Standalone
from ottla.cluster.versioned import Versioned
from ottla.config import load, topic_config
from ottla.coord.groups.coordinator import Groups
from ottla.disk import RealDisk
from ottla.log.store import LogStore
from ottla.replica.replicas import Replicas
from ottla.replica.waits import Waits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FEW, MANY = 30, 400
SLACK = 1.5  # trees get deeper, dictionaries grow now and then


class Calls:
    count = 0


@contextmanager
def counted() -> Iterator[Calls]:
    """Count the functions called and lines run on this thread. Copying a map of all topics is forbidden."""
    calls = Calls()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call", "line"):
            calls.count += 1

    def trace(frame: Any, event: str, argument: Any) -> Any:
        note(frame, event, argument)
        return trace  # lines count too: a comprehension over all topics calls no function

    def copied(self: object) -> None:
        raise AssertionError("a map of all topics was copied for one of them")

    sys.setprofile(note)
    sys.settrace(trace)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Versioned, "_whole", copied)
            yield calls
    finally:
        sys.settrace(None)
        sys.setprofile(None)


async def steps(folder: Path, topics: int) -> dict[str, int]:
    """The cost of each kind of change when `topics` topics exist."""
    metadata_store, config, clock = SqliteStore(MEMORY), load({"offsets.topic.num.partitions": "2"}), SystemClock()
    await metadata_store.open()
    controller = Standalone(metadata_store, Metadata(config, clock), clock)
    await controller.start({"PLAINTEXT": ("127.0.0.1", 9092)})
    store = LogStore([folder], RealDisk(), clock, config)
    store.open(lambda _: topic_config(config, {}))
    replicas = Replicas(controller.metadata, store, Waits(asyncio.get_running_loop()))
    groups = Groups(config, controller.metadata, controller, replicas, clock, lambda: "id")
    controller.metadata.subscribe(replicas.apply)
    controller.set_host(replicas)
    controller.metadata.subscribe(groups.apply)
    await groups.ensure()
    made = await controller.create_topics([NewTopic(f"old.topic_{n}", 1, 1) for n in range(topics)])
    assert all(isinstance(one, Topic) for one in made)
    costs = {}
    with counted() as calls:
        await controller.create_topics([NewTopic("new.topic", 1, 1)])
    costs["create"] = calls.count
    with counted() as calls:
        await controller.create_partitions("new.topic", 2)
    costs["grow"] = calls.count
    with counted() as calls:
        await controller.alter_topic("new.topic", [OptionChange("retention.ms", SET, "5")])
    costs["alter a topic"] = calls.count
    with counted() as calls:
        await controller.alter_group("g", [OptionChange("consumer.session.timeout.ms", SET, "46000")])
    costs["alter a group"] = calls.count
    with counted() as calls:
        await controller.delete_topics(["new.topic"])
    costs["delete"] = calls.count
    await store.close()
    await metadata_store.close()
    return costs


def test_a_change_costs_the_same_however_many_topics_exist(tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    (tmp_path / "many").mkdir()
    few = asyncio.run(steps(tmp_path / "few", FEW))
    many = asyncio.run(steps(tmp_path / "many", MANY))
    grown = {what: (few[what], many[what]) for what in few if many[what] > few[what] * SLACK}
    assert not grown, f"calls with {FEW} and with {MANY} topics: {grown}"


def test_new_defaults_reach_every_log(tmp_path: Path) -> None:
    """The one change that affects all topics reaches all of them, in time slices."""

    async def story() -> None:
        metadata_store, config, clock = SqliteStore(MEMORY), load({}), SystemClock()
        await metadata_store.open()
        controller = Standalone(metadata_store, Metadata(config, clock), clock)
        await controller.start({"PLAINTEXT": ("127.0.0.1", 9092)})
        store = LogStore([tmp_path], RealDisk(), clock, config)
        store.open(lambda _: topic_config(config, {}))
        replicas = Replicas(controller.metadata, store, Waits(asyncio.get_running_loop()))
        controller.metadata.subscribe(replicas.apply)
        controller.set_host(replicas)
        own = {"segment.bytes": "3000"}
        await controller.create_topics([NewTopic("plain", 2, 1), NewTopic("own", 1, 1, configs=own)])
        await controller.alter_broker(EVERY_BROKER, [OptionChange("log.segment.bytes", SET, "7000")])
        sizes = {(one.topic, one.index): one.log.config.segment_bytes for one in replicas}
        assert sizes == {("plain", 0): 7000, ("plain", 1): 7000, ("own", 0): 3000}
        await store.close()
        await metadata_store.close()

    asyncio.run(story())
