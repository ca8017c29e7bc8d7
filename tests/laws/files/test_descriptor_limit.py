"""A topic that would exceed the limit of open files is refused by name, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

from compat.raw import Raw, create_topic
from handlers.wired import Wired
from process import Ottla

from ottla.broker import Broker
from ottla.cluster.plans import NewTopic
from ottla.config import load
from ottla.errors import BrokerError, ErrorCode
from ottla.wire.messages.topics import CreatableTopic, CreateTopicsRequest

if TYPE_CHECKING:
    from pathlib import Path

POLICY_VIOLATION = 44
LIMIT = 100
LIMITED = f"""
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT}))
sys.argv = ["ottla", *sys.argv[1:]]
runpy.run_module("ottla", run_name="__main__", alter_sys=True)
"""


def test_partitions_beyond_the_limit_are_refused_and_nothing_is_half_made(tmp_path: Path) -> None:
    wrapper = tmp_path / "limited.py"
    wrapper.write_text(LIMITED)
    # Housekeeping opens and closes a few files at any time; this many topics outweigh that.
    with Ottla(tmp_path / "broker", wrapper=(str(wrapper),)) as broker, Raw(broker.port) as raw:
        assert create_topic(raw, "before", 1) == 0
        with Wired(broker.port) as wired:
            wish = CreatableTopic(name="wide", num_partitions=300, replication_factor=1, assignments=[], configs=[])
            result = wired.ask(CreateTopicsRequest(topics=[wish], timeout_ms=20_000), 7).topics[0]
        folders = [entry for entry in os.listdir(broker.log_dir) if entry.startswith("wide-")]
        if result.error_code == 0:
            assert len(folders) == 300, "idle files were closed: there was room"
            return
        assert result.error_code == POLICY_VIOLATION
        assert str(LIMIT) in result.error_message
        assert "wide" in result.error_message
        assert "ulimit -n" in result.error_message
        assert all(folder.endswith("-delete") for folder in folders), "what was made is on its way out"
        assert create_topic(raw, "wide", 2) == 0, "a smaller one has room, and no leftover is in its way"
        assert broker.stop() == 0
        broker.start()
        assert broker.alive, "the next start has room as well"


def test_a_broker_in_a_program_takes_what_the_system_allows(tmp_path: Path) -> None:
    program = """
import asyncio, resource
from ottla.embed import Broker, BrokerThread
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
with BrokerThread():
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard), "thread"
resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
async def main():
    async with Broker():
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard), "loop"
asyncio.run(main())
"""
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] > 200
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_all_directories_offline_refuse_a_topic(tmp_path: Path) -> None:
    async def story() -> None:
        broker = Broker(load({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}))
        await broker.start()
        for directory in broker._store.directories:
            directory.fail(OSError(errno.EIO, "broken"))
        controller = broker._dispatch._parts.controller  # type: ignore[union-attr]
        made = (await controller.create_topics([NewTopic("t", 1, 1)]))[0]
        assert isinstance(made, BrokerError)
        assert made.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert "t" not in controller.metadata.image.topics
        await broker.stop()

    asyncio.run(story())
