"""Every option that is marked live is changed on a running broker, and what reads it has the new value.

One row for each: a value, and where its reader looks. An option without a row fails, and so does a row without an
option. What a topic inherits is looked up in the configuration of an open log, which is what appends, fetches,
retention and compaction read; what a log or a segment keeps of it for speed has a row of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from handlers.conftest import port_of
from handlers.test_configs import BROKER, alter
from handlers.test_topics import create
from handlers.wired import Wired

from ottla.config.broker import OPTIONS
from ottla.config.option import CLUSTER_WIDE
from ottla.config.topic import INHERITED
from ottla.config.topic import OPTIONS as TOPIC_OPTIONS
from ottla.embed import BrokerThread
from ottla.log.store import LogStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ottla.broker import Broker
    from ottla.log.log import Log

EVERY: Final = ""


class Row(NamedTuple):
    value: str  # what to set it to; never the default
    seen: Callable[[Broker], Any] | None = None  # where the reader looks; None: in the log's own option
    as_read: Any = None  # what is seen there, if it is not the value as it is parsed


def log_of(broker: Broker) -> Log:
    return broker._store.logs["t", 0]


def store(attribute: str) -> Callable[[Broker], Any]:
    """Read by retention, the cleaner and compaction at each of their turns."""
    return lambda broker: getattr(broker._store.config, attribute)


def parts(attribute: str) -> Callable[[Broker], Any]:
    """Read by handlers at each request."""
    return lambda broker: getattr(broker._dispatch._parts.config, attribute)  # type: ignore[union-attr]


ROWS: Final[dict[str, Row]] = {
    "max.connections": Row("77", lambda broker: broker._admission._total_max),
    "max.connections.per.ip": Row("78", lambda broker: broker._admission._per_address_max),
    "max.connections.per.ip.overrides": Row(
        "10.0.0.1:5", lambda broker: broker._admission._overrides, as_read={"10.0.0.1": 5}
    ),
    "max.connection.creation.rate": Row("79", lambda broker: broker._enforcement._rates.rate_max),
    "num.recovery.threads.per.data.dir": Row("3", store("num_recovery_threads_per_data_dir")),
    "min.insync.replicas": Row("2"),
    "num.replica.fetchers": Row("3", parts("num_replica_fetchers")),
    "leader.replication.throttled.rate": Row("91", parts("leader_replication_throttled_rate")),
    "follower.replication.throttled.rate": Row("92", parts("follower_replication_throttled_rate")),
    "log.segment.bytes": Row("2000000", lambda broker: log_of(broker).segment_bytes),
    "log.roll.ms": Row("5000"),
    "log.roll.jitter.ms": Row("700"),
    "log.index.size.max.bytes": Row("8000", lambda broker: log_of(broker).active.offsets.table.capacity, as_read=1000),
    "log.index.interval.bytes": Row("99", lambda broker: log_of(broker).active._interval),
    "log.preallocate": Row("true"),
    "log.retention.ms": Row("90000"),
    "log.retention.bytes": Row("123456"),
    "log.cleanup.policy": Row("compact", lambda broker: log_of(broker).config.compacts, as_read=True),
    "log.segment.delete.delay.ms": Row("11"),
    "log.flush.interval.messages": Row("12", lambda broker: log_of(broker).durability.flush_messages),
    "log.flush.interval.ms": Row("13"),
    "log.cleaner.threads": Row("2", store("log_cleaner_threads")),
    "log.cleaner.backoff.ms": Row("14", store("log_cleaner_backoff_ms")),
    "log.cleaner.dedupe.buffer.size": Row("15000000", store("log_cleaner_dedupe_buffer_size")),
    "log.cleaner.io.buffer.size": Row("16000", store("log_cleaner_io_buffer_size")),
    "log.cleaner.io.buffer.load.factor": Row("0.7", store("log_cleaner_io_buffer_load_factor")),
    "log.cleaner.io.max.bytes.per.second": Row("17000.0", store("log_cleaner_io_max_bytes_per_second")),
    "log.cleaner.min.cleanable.ratio": Row("0.25"),
    "log.cleaner.min.compaction.lag.ms": Row("18"),
    "log.cleaner.max.compaction.lag.ms": Row("19"),
    "log.cleaner.delete.retention.ms": Row("20"),
    "message.max.bytes": Row("54321"),
    "compression.type": Row("zstd"),
    "compression.gzip.level": Row("4"),
    "compression.lz4.level": Row("5"),
    "compression.zstd.level": Row("6"),
    "log.message.timestamp.type": Row("LogAppendTime"),
    "log.message.timestamp.before.max.ms": Row("21"),
    "log.message.timestamp.after.max.ms": Row("22"),
    "log.message.timestamp.difference.max.ms": Row(
        "23", lambda broker: log_of(broker).config.message_timestamp_before_max_ms
    ),
    "log.message.downconversion.enable": Row("false"),
    "transaction.partition.verification.enable": Row("false", parts("transaction_partition_verification_enable")),
    "producer.id.expiration.ms": Row("24", lambda broker: log_of(broker).producers.expiration_ms),
    "unclean.leader.election.enable": Row("true"),
    "group.consumer.assignment.interval.ms": Row(
        "25",
        lambda broker: broker._groups.consumer_rules("g").assignment_interval_ms,  # type: ignore[union-attr]
    ),
}
OF_TOPICS: Final = {source: TOPIC_OPTIONS[name].attribute for name, source in INHERITED.items()}


def look(broker: Broker, name: str) -> Any:
    seen = ROWS[name].seen
    return seen(broker) if seen is not None else getattr(log_of(broker).config, OF_TOPICS[name])


def wanted(name: str) -> Any:
    row = ROWS[name]
    return OPTIONS[name].parse(row.value) if row.as_read is None else row.as_read


@pytest.fixture(scope="module")
def thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(data=tmp_path_factory.mktemp("live")) as running, Wired(port_of(running)) as wired:
        create(wired, "t")
        yield running


def root(thread: BrokerThread) -> Broker:
    found = thread._broker._root
    assert found is not None
    return found


def test_every_live_option_has_a_row_and_only_those() -> None:
    """But for those that are set for one broker only: they are certificates, see tests/security."""
    live = {name for name, row in OPTIONS.items() if row.live == CLUSTER_WIDE and not row.idle}
    assert not live - ROWS.keys(), "live options need a row in ROWS: a value, and where their reader looks"
    assert not ROWS.keys() - live, "rows without a live option of that name"


@pytest.mark.parametrize("name", ROWS)
def test_a_change_reaches_its_reader_and_goes_away_again(thread: BrokerThread, name: str) -> None:
    with Wired(port_of(thread)) as wired:
        before = look(root(thread), name)
        assert before != wanted(name), "the row sets it to what it is"
        for where in (EVERY, str(thread.node_id)):
            assert alter(wired, BROKER, where, name, ROWS[name].value) == 0
            assert look(root(thread), name) == wanted(name)
            assert alter(wired, BROKER, where, name, None) == 0
            assert look(root(thread), name) == before


def test_a_topic_that_comes_later_has_them_too(thread: BrokerThread) -> None:
    with Wired(port_of(thread)) as wired:
        assert alter(wired, BROKER, EVERY, "producer.id.expiration.ms", "24") == 0
        assert alter(wired, BROKER, EVERY, "log.segment.bytes", "2000000") == 0
        create(wired, "later")
        later = root(thread)._store.logs["later", 0]
        assert (later.producers.expiration_ms, later.segment_bytes) == (24, 2_000_000)
        assert alter(wired, BROKER, EVERY, "producer.id.expiration.ms", None) == 0
        assert alter(wired, BROKER, EVERY, "log.segment.bytes", None) == 0


def test_what_was_set_while_running_holds_from_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while logs are opened, which is when the number of recovery threads is read."""
    with BrokerThread(data=tmp_path) as running, Wired(port_of(running)) as wired:
        create(wired, "t")
        for name, row in ROWS.items():
            assert alter(wired, BROKER, EVERY, name, row.value) == 0
    threads: list[int] = []
    opened = LogStore.open

    def noted(self: LogStore, *arguments: Any, **options: Any) -> None:
        threads.append(self.config.num_recovery_threads_per_data_dir)
        opened(self, *arguments, **options)

    monkeypatch.setattr(LogStore, "open", noted)
    with BrokerThread(data=tmp_path) as running:
        late = {"log.message.timestamp.difference.max.ms"}  # gives way to the newer names, which are set as well
        found = {name: look(root(running), name) for name in ROWS if name not in late}
    assert found == {name: wanted(name) for name in ROWS if name not in late}
    assert threads == [3]


@pytest.mark.parametrize("replicas", ["2", "1000"])
def test_no_more_replicas_need_be_in_sync_than_there_are(thread: BrokerThread, replicas: str) -> None:
    """As Apache Kafka 4 has it: a topic of one replica takes acks=all, whatever min.insync.replicas says."""
    from compat.raw import Raw, batch, create_topic, produce

    with Raw(port_of(thread)) as raw:
        name = f"alone-{replicas}"
        assert create_topic(raw, name, 1, {"min.insync.replicas": replicas}) == 0
        assert produce(raw, name, batch([b"x"]), acks=-1).error == 0
