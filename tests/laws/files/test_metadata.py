"""The metadata file lost, emptied, torn or overwritten: settings are restored, or one clear line says what to do."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from ottla.broker import Broker
from ottla.cluster.alterations import SET, OptionChange
from ottla.cluster.image import EVERY_BROKER, Topic
from ottla.cluster.metadata_store import Unavailable
from ottla.cluster.plans import NewTopic
from ottla.config import load
from ottla.errors import BrokerError
from ottla.founding.alone import JOURNAL_FILE, METADATA_FILE
from ottla.records import batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from ottla.handlers.call import Parts

GROUP_CHANGE = [OptionChange("consumer.session.timeout.ms", SET, "46000")]


@asynccontextmanager
async def broker(folder: Path) -> AsyncIterator[Parts]:
    root = Broker(load({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder)}))
    try:
        await root.start()
        assert root._dispatch is not None
        yield root._dispatch._parts
    finally:
        await root.stop()


def strays(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith("-stray")]


async def filled(folder: Path) -> tuple[dict[str, Topic], int]:
    """Start and stop a broker with settings of every kind; return its topics and its last producer id."""
    async with broker(folder) as parts:
        controller = parts.controller
        await controller.create_topics(
            [
                NewTopic("kept", 2, 1, configs={"retention.ms": "-1"}),
                NewTopic("compacted", 1, 1, configs={"cleanup.policy": "compact"}),
                NewTopic("plain", 1, 1),
                NewTopic("gone", 1, 1, configs={"retention.ms": "7"}),
            ]
        )
        await controller.delete_topics(["gone"])
        await controller.create_partitions("plain", 3)
        await controller.alter_topic("plain", [OptionChange("segment.bytes", SET, "9999")])
        await controller.alter_broker(EVERY_BROKER, [OptionChange("log.retention.ms", SET, "70000")])
        await controller.alter_group("a/group", GROUP_CHANGE)
        await parts.old_offsets.set("old", "kept", 0, 17)
        last = await parts.producer_ids.take()
        return dict(controller.metadata.image.topics), last


def lost(file: Path) -> None:
    file.unlink()


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def scribbled(file: Path) -> None:
    file.write_bytes(b"scribble" * 4096)


def torn(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2 // 4096 * 4096] + b"\0" * 100)


def holed(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[4096 : len(data) - 4096] = bytes(len(data) - 2 * 4096)
    file.write_bytes(data)


@pytest.mark.parametrize("break_it", [lost, emptied, scribbled, torn, holed])
def test_everything_that_was_set_survives_the_file(tmp_path: Path, break_it: Callable[[Path], None]) -> None:
    async def story() -> None:
        before, last = await filled(tmp_path)
        break_it(tmp_path / METADATA_FILE)
        async with broker(tmp_path) as parts:
            image = parts.metadata.image
            assert {name: (one.id, one.configs) for name, one in image.topics.items()} == {
                name: (one.id, one.configs) for name, one in before.items()
            }
            assert {name: len(one.partitions) for name, one in image.topics.items()} == {
                name: len(one.partitions) for name, one in before.items()
            }
            assert all(
                state.leader_epoch > before[name].partitions[state.index].leader_epoch
                for name, one in image.topics.items()
                for state in one.partitions
            ), "an epoch is above what the log has seen"
            assert image.broker_configs == {EVERY_BROKER: {"log.retention.ms": "70000"}}
            assert image.group_configs == {"a/group": {"consumer.session.timeout.ms": "46000"}}
            assert await parts.old_offsets.get("old", "kept", 0) == 17
            assert await parts.producer_ids.take() > last, "no producer id is given out twice"
            assert not strays(tmp_path), "no log was put away"
            logs = {(one.topic, one.index): one.log.config.retention_ms for one in parts.replicas}
            assert logs["kept", 1] == -1
        async with broker(tmp_path) as parts:
            assert parts.metadata.image.topics["kept"].configs == {"retention.ms": "-1"}, "and it stays so"

    asyncio.run(story())


def test_a_file_older_than_the_journal_is_rebuilt_from_it(tmp_path: Path) -> None:
    """It was believed: topics created since then lost their records, and topics changed since then their settings."""
    here, crashed = tmp_path / "here", tmp_path / "crashed"

    async def story() -> None:
        async with broker(here) as parts:
            await parts.controller.create_topics([NewTopic("first", 1, 1), NewTopic("gone", 1, 1)])
        old = (here / METADATA_FILE).read_bytes()
        async with broker(here) as parts:
            await parts.controller.create_topics([NewTopic("second", 2, 1, configs={"cleanup.policy": "compact"})])
            await parts.controller.alter_topic("first", [OptionChange("retention.ms", SET, "-1")])
            await parts.controller.delete_topics(["gone"])
            data = batch.build([batch.Record(0, parts.clock.now_ms(), b"key", b"value", ())])
            parts.replicas.require_led("second", 1).append(memoryview(data), parts.clock.now_ms(), 9)
            topics = dict(parts.metadata.image.topics)
            shutil.copytree(here, crashed)  # as a kill leaves it
        (crashed / METADATA_FILE).write_bytes(old)
        (crashed / f"{METADATA_FILE}-wal").unlink()
        for _ in range(2):
            async with broker(crashed) as parts:
                now = parts.metadata.image.topics
                assert {name: (one.id, one.configs) for name, one in now.items()} == {
                    name: (one.id, one.configs) for name, one in topics.items()
                }
                assert not strays(crashed)
                assert parts.replicas.require_led("second", 1).log.end == 1
        assert (crashed / f"{METADATA_FILE}.outdated1").exists()

    asyncio.run(story())


def test_without_a_journal_a_damaged_file_is_refused_and_stays(tmp_path: Path) -> None:
    async def story() -> None:
        await filled(tmp_path)
        (tmp_path / JOURNAL_FILE).unlink()
        scribbled(tmp_path / METADATA_FILE)
        with pytest.raises(Unavailable, match="not a database; move it away to start"):
            async with broker(tmp_path):
                pass
        assert (tmp_path / METADATA_FILE).read_bytes().startswith(b"scribble")

    asyncio.run(story())


def test_a_node_that_makes_no_sense_is_one_line(tmp_path: Path) -> None:
    async def story() -> None:
        await filled(tmp_path)
        database = sqlite3.connect(tmp_path / METADATA_FILE)
        database.execute("UPDATE node SET data = 'nonsense' WHERE path = '/brokers/topics/kept'")
        database.commit()
        database.close()
        with pytest.raises(BrokerError, match="move it away to have it rebuilt"):
            async with broker(tmp_path):
                pass

    asyncio.run(story())


def test_a_journal_that_is_lost_torn_or_old_is_written_anew(tmp_path: Path) -> None:
    async def story() -> None:
        before, _ = await filled(tmp_path)
        journal = tmp_path / JOURNAL_FILE
        whole = journal.read_bytes()
        for damage in (None, b"", whole[: len(whole) // 3], whole[:-5], b"scribble"):
            if damage is None:
                journal.unlink()
            else:
                journal.write_bytes(damage)
            async with broker(tmp_path):
                pass
            (tmp_path / METADATA_FILE).unlink()
            async with broker(tmp_path) as parts:
                assert parts.metadata.image.topics["kept"].configs == before["kept"].configs

    asyncio.run(story())


def test_a_journal_that_cannot_be_written_stops_nobody_and_catches_up(tmp_path: Path) -> None:
    async def story() -> None:
        journal = tmp_path / JOURNAL_FILE
        async with broker(tmp_path) as parts:
            os.unlink(journal)
            os.mkdir(journal)
            await parts.controller.create_topics([NewTopic("a", 1, 1, configs={"retention.ms": "1"})])
            os.rmdir(journal)
            await parts.controller.create_topics([NewTopic("b", 1, 1, configs={"retention.ms": "2"})])
            text = journal.read_text()
            assert "/config/topics/a" in text
            assert "/config/topics/b" in text

    asyncio.run(story())


def test_where_folder_and_journal_differ_the_folder_is_believed(tmp_path: Path) -> None:
    """A journal may lack its last lines: a topic recreated since then must not get the old one's settings."""

    async def story() -> None:
        await filled(tmp_path)
        old = (tmp_path / JOURNAL_FILE).read_bytes()
        async with broker(tmp_path) as parts:
            await parts.controller.delete_topics(["kept"])
            await parts.controller.create_topics([NewTopic("kept", 3, 1), NewTopic("newer", 1, 1)])
            topics = dict(parts.metadata.image.topics)
        (tmp_path / JOURNAL_FILE).write_bytes(old)
        (tmp_path / METADATA_FILE).unlink()
        async with broker(tmp_path) as parts:
            now = parts.metadata.image.topics
            assert {name: one.id for name, one in now.items()} == {name: one.id for name, one in topics.items()}
            assert now["kept"].configs == {}
            assert len(now["kept"].partitions) == 3
            assert not strays(tmp_path)

    asyncio.run(story())


def test_what_is_left_of_a_damaged_journal_is_taken(tmp_path: Path) -> None:
    """Both are damaged: a missing line may be the one that created the parents of all other nodes."""

    async def written() -> None:
        async with broker(tmp_path) as parts:
            now_ms = parts.clock.now_ms()
            one = batch.Record(0, now_ms, None, b"", ())
            data = batch.build([one], producer_id=7, producer_epoch=0, base_sequence=0)
            parts.replicas.require_led("plain", 0).append(memoryview(data), now_ms, 9)

    asyncio.run(filled(tmp_path))
    asyncio.run(written())
    (tmp_path / METADATA_FILE).unlink()
    first, *others = (tmp_path / JOURNAL_FILE).read_bytes().splitlines(keepends=True)
    assert others
    (tmp_path / JOURNAL_FILE).write_bytes(b"".join([b"?" * (len(first) - 1) + b"\n", *others]))

    async def again() -> None:
        async with broker(tmp_path) as parts:
            assert parts.metadata.image.topics["kept"].configs["retention.ms"] == "-1"
            assert parts.metadata.image.topics["compacted"].configs["cleanup.policy"] == "compact"

    asyncio.run(again())
