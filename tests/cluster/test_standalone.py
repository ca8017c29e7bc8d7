"""The controller on its store: what it writes, publishes, survives and refuses."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.cluster import znodes
from ottla.cluster.alterations import DELETE, SET, OptionChange
from ottla.cluster.image import EVERY_BROKER, Image, Topic
from ottla.cluster.metadata import Metadata
from ottla.cluster.metadata_store import Create, Set, Unavailable
from ottla.cluster.plans import FoundLog, Legacy, NewTopic
from ottla.cluster.producer_ids import ProducerIds
from ottla.cluster.sqlite_store import MEMORY, SqliteStore
from ottla.cluster.standalone import Standalone
from ottla.config import load
from ottla.errors import BrokerError, ErrorCode

ENDPOINTS = {"PLAINTEXT": ("127.0.0.1", 9092)}


class Clock:
    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic(self) -> float:
        return 0.0


def tell(story: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await story()

    asyncio.run(whole())


async def started(file: str = MEMORY, **options: object) -> tuple[Standalone, SqliteStore]:
    store = SqliteStore(file)
    await store.open()
    controller = Standalone(store, Metadata(load({}), Clock()), Clock())
    await controller.start(ENDPOINTS, **options)  # type: ignore[arg-type]
    return controller, store


async def topic(controller: Standalone, name: str, partitions: int = 1, **configs: str) -> Topic:
    wish = NewTopic(name, partitions, configs={key.replace("_", "."): value for key, value in configs.items()})
    made = (await controller.create_topics([wish]))[0]
    assert isinstance(made, Topic)
    return made


def test_the_first_start_makes_a_cluster_of_one() -> None:
    async def story() -> None:
        controller, store = await started()
        image = controller.metadata.image
        assert controller.first_start
        assert (len(image.cluster_id), image.controller_id) == (22, 1)
        assert image.brokers[1].endpoints == ENDPOINTS
        assert image.brokers[1].epoch == (await store.get("/brokers/ids/1")).stat.czxid > 0
        assert znodes.image_of(await store.tree("/")) == image
        assert (await store.get("/controller_epoch")).data == b"1"
        await store.close()

    tell(story)


def test_what_is_published_is_what_is_kept_after_every_change() -> None:
    async def story() -> None:
        controller, store = await started()
        told: list[tuple[Image | None, Image]] = []
        controller.metadata.subscribe(lambda old, new: told.append((old, new)))
        await topic(controller, "a", 3, retention_ms="5")
        await topic(controller, "b", 2)
        await controller.create_partitions("b", 5)
        await controller.alter_topic(
            "a", [OptionChange("retention.ms", DELETE, None), OptionChange("segment.ms", SET, "9")]
        )
        await controller.alter_broker(EVERY_BROKER, [OptionChange("log.retention.ms", SET, "70000")])
        await controller.alter_broker("1", [OptionChange("log.segment.bytes", SET, "6000")])
        await controller.alter_broker("1", [OptionChange("log.segment.bytes", SET, "7000")])
        await controller.delete_topics(["a"])
        assert znodes.image_of(await store.tree("/")) == controller.metadata.image
        assert told[0] == (None, told[1][0])
        assert [old for old, _ in told[1:]] == [new for _, new in told[:-1]], "each image is followed by the next"
        assert told[-1][1] is controller.metadata.image
        assert len(told) == 9
        await store.close()

    tell(story)


def test_a_restart_keeps_everything_and_leads_in_a_new_epoch(tmp_path: Path) -> None:
    async def story() -> None:
        file = str(tmp_path / "metadata.db")
        controller, store = await started(file)
        await topic(controller, "a", 2, retention_ms="5")
        before = controller.metadata.image
        await store.close()
        for life in (1, 2):
            controller, store = await started(file)
            after = controller.metadata.image
            assert not controller.first_start
            assert (after.cluster_id, after.names_by_id) == (before.cluster_id, before.names_by_id)
            assert after.topics["a"].configs == {"retention.ms": "5"}
            assert [(one.leader_epoch, one.version) for one in after.topics["a"].partitions] == [(life, life)] * 2
            assert after.brokers[1].epoch > before.brokers[1].epoch
            assert znodes.image_of(await store.tree("/")) == after
            await store.close()

    tell(story)


def test_after_a_clean_stop_leaders_go_on_in_their_epochs_and_nothing_is_written_for_them(tmp_path: Path) -> None:
    async def story() -> None:
        file = str(tmp_path / "metadata.db")
        controller, store = await started(file)
        await topic(controller, "a", 2, retention_ms="5")
        before = controller.metadata.image
        await store.close()
        controller, store = await started(file, clean=True)
        assert controller.metadata.image.topics == before.topics
        await store.close()
        # If Apache Kafka has written to the folder meanwhile, the log has later epochs than our metadata.
        controller, store = await started(file, clean=True, epoch_of=lambda name, index: 7 * index)
        states = controller.metadata.image.topics["a"].partitions
        assert [(one.leader_epoch, one.version) for one in states] == [(0, 0), (8, 1)]
        assert znodes.image_of(await store.tree("/")) == controller.metadata.image
        await store.close()

    tell(story)


def test_a_folder_of_kafka_is_adopted_once(tmp_path: Path) -> None:
    async def story() -> None:
        file, cluster_id = str(tmp_path / "metadata.db"), "doRbhJOdThu-Rmtq4mdHEQ"
        legacy = Legacy(
            logs=[FoundLog("t", 0, b"i" * 16, 3), FoundLog("t", 1, b"i" * 16, 2, producer_id=41)],
            topics={"t": {"retention.ms": "-1", "remote.storage.enable": "true"}},
            brokers={"": {"log.segment.bytes": "5000", "num.io.threads": "9"}},
        )
        controller, store = await started(file, cluster_id=cluster_id, legacy=lambda: legacy)
        assert controller.metadata.image.cluster_id == cluster_id
        assert controller.metadata.image.names_by_id == {b"i" * 16: "t"}
        assert [one.leader_epoch for one in controller.metadata.image.topics["t"].partitions] == [4, 3]
        assert controller.metadata.image.topics["t"].configs == {"retention.ms": "-1"}, "what has a meaning here"
        assert controller.metadata.image.broker_configs == {"": {"log.segment.bytes": "5000"}}
        assert controller.metadata.config.log_segment_bytes == 5000
        assert await ProducerIds(store, 1).take() == 42, "nobody is taken for a producer that the logs remember"
        assert znodes.image_of(await store.tree("/")) == controller.metadata.image
        await controller.delete_topics(["t"])
        await store.close()
        controller, store = await started(file, cluster_id=cluster_id, legacy=lambda: legacy)
        assert controller.metadata.image.topics == {}, "a deleted topic does not come back with its files"
        await store.close()

    tell(story)


def test_folders_of_another_cluster_are_refused(tmp_path: Path) -> None:
    async def story() -> None:
        file = str(tmp_path / "metadata.db")
        _, store = await started(file)
        await store.close()
        with pytest.raises(BrokerError) as raised:
            await started(file, cluster_id="doRbhJOdThu-Rmtq4mdHEQ")
        assert raised.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID

    tell(story)


def test_topics_that_old_tools_wrote_get_an_id_and_a_leader(tmp_path: Path) -> None:
    async def story() -> None:
        file = str(tmp_path / "metadata.db")
        _, store = await started(file)
        await store.create("/brokers/topics/old", b'{"version":1,"partitions":{"0":[1],"1":[1]}}')
        await store.close()
        controller, store = await started(file)
        old = controller.metadata.image.topics["old"]
        assert old.id != bytes(16)
        assert [(one.leader, one.leader_epoch, one.isr) for one in old.partitions] == [(1, 0, (1,))] * 2
        assert znodes.image_of(await store.tree("/")) == controller.metadata.image
        await store.close()

    tell(story)


def test_each_item_of_a_request_has_its_own_fate() -> None:
    async def story() -> None:
        controller, store = await started()
        results = await controller.create_topics([NewTopic("a"), NewTopic("a"), NewTopic("b", 0), NewTopic("c")])
        assert [isinstance(result, Topic) for result in results] == [True, False, False, True]
        assert sorted(controller.metadata.image.topics) == ["a", "c"]
        gone = await controller.delete_topics(["a", "nope", "c"])
        assert [isinstance(result, Topic) for result in gone] == [True, False, True]
        assert controller.metadata.image.topics == {}
        await store.close()

    tell(story)


def test_validation_changes_nothing() -> None:
    async def story() -> None:
        controller, store = await started()
        await topic(controller, "a")
        before = controller.metadata.image
        kept = await store.tree("/")
        assert isinstance((await controller.create_topics([NewTopic("b")], validate_only=True))[0], Topic)
        await controller.create_partitions("a", 2, validate_only=True)
        await controller.alter_topic("a", [OptionChange("segment.ms", SET, "5")], validate_only=True)
        await controller.alter_broker("1", [OptionChange("log.segment.bytes", SET, "5000")], validate_only=True)
        assert controller.metadata.image is before
        assert await store.tree("/") == kept
        await store.close()

    tell(story)


def test_options_set_while_running_reach_topics_that_do_not_say_otherwise() -> None:
    async def story() -> None:
        controller, store = await started()
        plain, own = await topic(controller, "plain"), await topic(controller, "own", segment_bytes="2000")
        assert controller.metadata.topic_config(plain) is controller.metadata.topic_config(plain)
        await controller.alter_broker(EVERY_BROKER, [OptionChange("log.segment.bytes", SET, "5000")])
        assert controller.metadata.topic_config(plain).segment_bytes == 5000
        assert controller.metadata.topic_config(own).segment_bytes == 2000
        await controller.alter_broker("1", [OptionChange("log.segment.bytes", SET, "6000")])
        assert controller.metadata.config.log_segment_bytes == 6000
        await controller.alter_broker("1", [], replace=True)
        assert controller.metadata.topic_config(plain).segment_bytes == 5000
        await store.close()

    tell(story)


def test_replacing_options_forgets_those_not_mentioned() -> None:
    async def story() -> None:
        controller, store = await started()
        await topic(controller, "a", retention_ms="5")
        await controller.alter_topic("a", [OptionChange("segment.ms", SET, "9")], replace=True)
        assert controller.metadata.image.topics["a"].configs == {"segment.ms": "9"}
        with pytest.raises(BrokerError, match="does not exist"):
            await controller.alter_topic("nope", [])
        await store.close()

    tell(story)


def test_a_topic_made_on_demand_is_made_once_however_many_ask() -> None:
    async def story() -> None:
        controller, store = await started()
        results = await asyncio.gather(*(controller.auto_create("a") for _ in range(5)), return_exceptions=True)
        assert sum(isinstance(result, Topic) for result in results) == 1
        others = [result for result in results if isinstance(result, BrokerError)]
        assert {error.code for error in others} == {ErrorCode.TOPIC_ALREADY_EXISTS}
        assert (await controller.auto_create("__consumer_offsets")).configs["cleanup.policy"] == "compact"
        await store.close()

    tell(story)


def test_a_controller_that_was_replaced_cannot_write() -> None:
    async def story() -> None:
        controller, store = await started()
        await store.set("/controller_epoch", b"2")
        before = controller.metadata.image
        refused = (await controller.create_topics([NewTopic("a")]))[0]
        assert isinstance(refused, BrokerError)
        assert refused.code is ErrorCode.NOT_CONTROLLER
        assert controller.metadata.image is before
        await store.close()

    tell(story)


def test_a_store_that_fails_refuses_the_change_and_nothing_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        controller, store = await started()

        async def broken(ops: object) -> list[str]:
            raise Unavailable("disk full")

        before = controller.metadata.image
        with monkeypatch.context() as patch:
            patch.setattr(store, "multi", broken)
            refused, impossible = await controller.create_topics([NewTopic("a"), NewTopic("a b")])
        assert isinstance(refused, BrokerError)
        assert isinstance(impossible, BrokerError)
        assert (refused.code, impossible.code) == (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INVALID_TOPIC_EXCEPTION)
        assert controller.metadata.image is before
        await topic(controller, "a")
        await store.close()

    tell(story)


def test_ids_are_version_4_and_never_look_like_an_option() -> None:
    async def story() -> None:
        store = SqliteStore(MEMORY)
        await store.open()
        chances = iter([b"\xfb" + bytes(15), b"\xfb" + bytes(15), *(bytes([n]) * 16 for n in range(1, 9))])
        controller = Standalone(
            store, Metadata(load({}), Clock()), Clock(), random_bytes=lambda count: next(chances)[:count]
        )
        await controller.start(ENDPOINTS)
        assert not controller.metadata.image.cluster_id.startswith("-")
        identity = (await topic(controller, "a")).id
        assert (identity[6] >> 4, identity[8] >> 6) == (4, 2)
        await store.close()

    tell(story)


def test_an_image_shares_what_did_not_change() -> None:
    async def story() -> None:
        controller, store = await started()
        first = await topic(controller, "a")
        await topic(controller, "b")
        await controller.alter_topic("b", [OptionChange("segment.ms", SET, "5")])
        assert controller.metadata.image.topics["a"] is first
        await store.close()

    tell(story)


def test_a_topic_is_made_in_one_transaction() -> None:
    """It fails on its last node here, and none of the others remains."""

    async def story() -> None:
        controller, store = await started()
        await store.multi([Create("/config/topics/a", b"in the way"), Set("/config/topics/a", b"still")])
        before = await store.tree("/")
        refused = (await controller.create_topics([NewTopic("a", 3)]))[0]
        assert isinstance(refused, BrokerError)
        assert "NodeExists /config/topics/a" in refused.message
        assert await store.tree("/") == before
        await store.close()

    tell(story)


def test_options_of_groups_are_kept_for_groups_of_any_name(tmp_path: Path) -> None:
    name = "a/group of mine"
    wanted = {name: {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "6000"}}

    async def story() -> None:
        controller, store = await started(str(tmp_path / "store"))
        longer = OptionChange("consumer.session.timeout.ms", SET, "50000")
        await controller.alter_group(name, [longer])
        await controller.alter_group(name, [OptionChange("consumer.heartbeat.interval.ms", SET, "6000")])
        await controller.alter_group("other", [longer], validate_only=True)
        with pytest.raises(BrokerError) as refused:
            await controller.alter_group(name, [OptionChange("nope", SET, "1")])
        assert refused.value.code is ErrorCode.INVALID_CONFIG
        assert controller.metadata.image.group_configs == wanted
        await store.close()

    async def end() -> None:
        controller, store = await started(str(tmp_path / "store"))
        assert controller.metadata.image.group_configs == wanted
        await controller.alter_group(name, [], replace=True)
        assert controller.metadata.image.group_configs == {}
        assert znodes.image_of(await store.tree("/")).group_configs == {}
        await store.close()

    tell(story)
    tell(end)
