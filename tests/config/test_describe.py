"""Where a value comes from: layers, synonyms, defaults."""

from ottla.config import load
from ottla.config.describe import (
    DEFAULT,
    EVERY_BROKER,
    STATIC,
    THIS_BROKER,
    TOPIC,
    ConfigEntry,
    Layers,
    describe_broker,
    describe_every_broker,
    describe_topic,
)

LAYERS = Layers(
    static=load({"log.retention.hours": "2", "num.partitions": "3"}),
    every={"log.retention.ms": "60000", "log.segment.bytes": "5000"},
    own={"log.segment.bytes": "6000"},
)


def one(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    return next(entry for entry in entries if entry.row.name == name)


def test_a_topic_says_where_its_value_comes_from() -> None:
    entries = describe_topic(LAYERS, {"retention.ms": "7"})
    retention = one(entries, "retention.ms")
    assert (retention.value, retention.source) == ("7", TOPIC)
    assert [tuple(synonym) for synonym in retention.synonyms] == [
        ("retention.ms", "7", TOPIC),
        ("log.retention.ms", "60000", EVERY_BROKER),
        ("log.retention.hours", "2", STATIC),
        ("log.retention.hours", "168", DEFAULT),
    ]
    segment = one(entries, "segment.bytes")
    assert (segment.value, segment.source) == ("6000", THIS_BROKER)
    assert [synonym.value for synonym in segment.synonyms] == ["6000", "5000", "1073741824"]


def test_a_value_in_hours_is_told_in_the_unit_of_its_name() -> None:
    layers = Layers(load({"log.retention.hours": "2"}), {}, {})
    retention = one(describe_topic(layers, {}), "retention.ms")
    assert (retention.value, retention.source) == ("7200000", STATIC)
    assert one(describe_broker(layers), "log.retention.ms").value is None, "it has no value of its own"
    assert one(describe_broker(layers), "log.retention.hours").value == "2"


def test_a_broker_tells_all_its_options() -> None:
    entries = describe_broker(LAYERS)
    assert (one(entries, "num.partitions").value, one(entries, "num.partitions").read_only) == ("3", True)
    assert (one(entries, "log.segment.bytes").value, one(entries, "log.segment.bytes").read_only) == ("6000", False)
    assert one(entries, "offsets.topic.num.partitions").value == "50", "those without effect too"
    assert [entry.row.name for entry in entries] == sorted(entry.row.name for entry in entries)


def test_all_brokers_tell_only_what_was_set_for_them() -> None:
    entries = describe_every_broker(LAYERS)
    assert [(entry.row.name, entry.value, entry.source) for entry in entries] == [
        ("log.retention.ms", "60000", EVERY_BROKER),
        ("log.segment.bytes", "5000", EVERY_BROKER),
    ]


def test_only_what_is_asked_for_and_known() -> None:
    assert [entry.row.name for entry in describe_topic(LAYERS, {}, ["segment.ms", "x", "segment.ms"])] == ["segment.ms"]
    assert [entry.row.name for entry in describe_broker(LAYERS, ["num.partitions", "x"])] == ["num.partitions"]
    assert describe_every_broker(LAYERS, ["num.partitions"]) == []
