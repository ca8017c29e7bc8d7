"""A request about many topics is handled in time slices: measured as the loop thread's CPU time between two slices."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from laws.loop.gaps import HELD_MAX, Gaps
from laws.yardstick import TRIES, least, others_set_aside

from ottla.clock import SystemClock
from ottla.cluster.image import Topic
from ottla.cluster.metadata import Metadata
from ottla.cluster.plans import NewTopic
from ottla.cluster.sqlite_store import MEMORY, SqliteStore
from ottla.cluster.standalone import Standalone
from ottla.config import load, topic_config
from ottla.disk import RealDisk
from ottla.handlers.cluster import elect_leaders
from ottla.log.store import LogStore
from ottla.replica.replicas import Replicas
from ottla.replica.waits import Waits
from ottla.wire.decoding import REQUEST_ELEMENTS_MAX
from ottla.wire.messages.topics import ElectLeadersRequest, TopicPartitions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    import pytest

TOPICS = 400


async def held(work: Callable[[], Awaitable[object]]) -> float:
    """How long the work blocks the loop."""
    with others_set_aside():
        gaps = Gaps()
        await gaps.begin()
        await work()
        return await gaps.end()


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Standalone]:
    metadata_store, config, clock = SqliteStore(MEMORY), load({}), SystemClock()
    await metadata_store.open()
    controller = Standalone(metadata_store, Metadata(config, clock), clock)
    await controller.start({"PLAINTEXT": ("127.0.0.1", 9092)})
    store = LogStore([folder], RealDisk(), clock, config)
    store.open(lambda _: topic_config(config, {}))
    replicas = Replicas(controller.metadata, store, Waits(asyncio.get_running_loop()))
    controller.metadata.subscribe(replicas.apply)
    controller.set_host(replicas)
    yield controller
    await store.close()
    await metadata_store.close()


def test_many_topics_in_one_request_leave_the_loop_to_others(tmp_path: Path) -> None:
    creating, deleting = [], []
    names = [f"t-{n}" for n in range(TOPICS)]

    async def story() -> None:
        async with running(tmp_path) as controller:

            async def create() -> None:
                made = await controller.create_topics([NewTopic(name, 1, 1) for name in names])
                assert all(isinstance(one, Topic) for one in made)

            async def delete() -> None:
                gone = await controller.delete_topics(names)
                assert all(isinstance(one, Topic) for one in gone)

            for _ in range(TRIES):
                creating.append(await held(create))
                deleting.append(await held(delete))
                assert not controller.metadata.image.topics
                if max(min(creating), min(deleting)) < HELD_MAX:
                    break

    asyncio.run(story())
    assert min(creating) < HELD_MAX
    assert min(deleting) < HELD_MAX


def test_others_get_a_turn_between_any_two_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the shortest time slice, the work yields to the loop once for each topic or partition."""
    monkeypatch.setattr("ottla.cluster.turns.TURN_S", 0.0)
    names = [f"t-{n}" for n in range(50)]
    given_back = 0
    genuine = asyncio.sleep

    async def sleep(delay: float) -> None:
        nonlocal given_back
        given_back += delay == 0
        await genuine(delay)

    monkeypatch.setattr("asyncio.sleep", sleep)

    async def story() -> None:
        nonlocal given_back
        async with running(tmp_path) as controller:
            for work in (
                controller.create_topics([NewTopic(name, 1, 1) for name in names]),
                controller.create_topics([NewTopic("wide", len(names), 1)]),
                controller.create_partitions("wide", 2 * len(names)),
                controller.delete_topics([*names, "wide"]),
            ):
                given_back = 0
                await work
                assert given_back >= len(names)

    asyncio.run(story())


def test_many_partitions_of_one_topic_leave_the_loop_to_others(tmp_path: Path) -> None:
    async def story() -> float:
        async with running(tmp_path) as controller:

            async def come_and_go() -> None:
                await controller.create_topics([NewTopic("wide", 200, 1)])
                await controller.create_partitions("wide", TOPICS)
                await controller.delete_topics(["wide"])

            return await held(come_and_go)

    assert least(lambda: asyncio.run(story()), HELD_MAX) < HELD_MAX


def test_what_writes_nothing_takes_turns_as_well(tmp_path: Path) -> None:
    async def story() -> float:
        async with running(tmp_path) as controller:
            wishes = [NewTopic(f"t-{n}", 1, 1) for n in range(9_900)]
            return await held(lambda: controller.create_topics(wishes, validate_only=True))

    assert least(lambda: asyncio.run(story()), HELD_MAX) < HELD_MAX


def test_long_lists_of_partitions_are_answered_in_turns(tmp_path: Path) -> None:
    async def story() -> float:
        async with running(tmp_path) as controller:
            await controller.create_topics([NewTopic("t", 1, 1)])
            parts: Any = SimpleNamespace(metadata=controller.metadata, controller=controller, replicas=controller._host)
            many = list(range(REQUEST_ELEMENTS_MAX // 2))  # no request has more elements

            async def elect() -> None:
                asked = TopicPartitions(topic="t", partitions=many + many)
                elected = await elect_leaders(
                    parts,
                    SimpleNamespace(version=2),
                    ElectLeadersRequest(election_type=0, topic_partitions=[asked]),  # type: ignore[arg-type]
                )
                assert len(elected.replica_election_results[0].partition_result) == len(many), "each is told once"

            return await held(elect)

    assert least(lambda: asyncio.run(story()), HELD_MAX) < HELD_MAX
