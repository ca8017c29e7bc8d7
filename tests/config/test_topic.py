"""Topic options: inherited from the broker, overridden by the topic."""

import pytest

from ottla.config import ConfigError, load, topic_config
from ottla.config.topic import magic_of


def test_a_topic_takes_what_it_does_not_say_from_the_broker() -> None:
    broker = load({"log.retention.hours": "1", "log.cleanup.policy": "compact", "message.max.bytes": "5"})
    topic = topic_config(broker, {"retention.ms": "7", "segment.bytes": "1000"})
    assert (topic.retention_ms, topic.segment_bytes) == (7, 1000)
    assert (topic.max_message_bytes, topic.cleanup_policy) == (5, ("compact",))
    assert topic_config(broker, {}).retention_ms == 3_600_000


@pytest.mark.parametrize(
    ("policy", "compacts", "deletes"),
    [("delete", False, True), ("compact", True, False), ("compact,delete", True, True), ("", False, False)],
)
def test_what_happens_to_old_segments(policy: str, compacts: bool, deletes: bool) -> None:
    topic = topic_config(load({}), {"cleanup.policy": policy})
    assert (topic.compacts, topic.deletes) == (compacts, deletes)


@pytest.mark.parametrize(
    ("version", "magic"),
    [("0.8.0", 0), ("0.9.0", 0), ("0.10.0-IV1", 1), ("0.10.2", 1), ("0.11.0-IV0", 2), ("1.0", 2), ("3.0-IV1", 2)],
)
def test_the_format_of_a_version(version: str, magic: int) -> None:
    assert topic_config(load({}), {"message.format.version": version}).magic == magic
    assert topic_config(load({"log.message.format.version": version}), {}).magic == magic


@pytest.mark.parametrize("version", ["", "1", "x.y", "0.7.0", "²"])
def test_what_is_no_version(version: str) -> None:
    with pytest.raises(ConfigError, match="Not a version"):
        magic_of(version)


def test_the_older_time_limit_stands_in_for_both_newer_ones() -> None:
    old = topic_config(load({}), {"message.timestamp.difference.max.ms": "5"})
    assert (old.message_timestamp_before_max_ms, old.message_timestamp_after_max_ms) == (5, 5)
    mixed = topic_config(
        load({"log.message.timestamp.difference.max.ms": "5"}), {"message.timestamp.before.max.ms": "9"}
    )
    assert (mixed.message_timestamp_before_max_ms, mixed.message_timestamp_after_max_ms) == (9, 5)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"log.segment.bytes": "1000"}, "Unknown topic config name: log.segment.bytes"),
        ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, r"\(9\) > max.compaction.lag.ms \(8\)"),
        ({"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled"),
    ],
)
def test_the_impossible_is_refused_by_name(overrides: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        topic_config(load({}), overrides)
