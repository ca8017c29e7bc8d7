"""kcat, the command line of librdkafka 2.0, which asks for the broker's versions, or assumes those of 0.8.2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from compat.clients import CODECS
from compat.kcat import Kcat
from compat.raw import Raw, read_all

if TYPE_CHECKING:
    from collections.abc import Callable

    import judge
    from process import Ottla

pytestmark = pytest.mark.xdist_group("kcat")


@pytest.fixture
def kcat(broker: Ottla | judge.Kafka) -> Kcat:
    return Kcat(broker.bootstrap)


@pytest.mark.parametrize("codec", CODECS)
def test_keys_headers_and_empty_values_round_trip(
    kcat: Kcat, codec: str, fresh: Callable[[str], str], broker: Ottla | judge.Kafka
) -> None:
    topic = fresh("kcat")
    lines = [b"key:value", b":no key but empty", b"gone:", b"long:" + b"again " * 400]
    kcat.produce(topic, lines, "-K:", "-Z", "-H", "name=value", "-H", "empty=", codec=codec)
    stored = kcat.consume(topic, 0, 4)
    assert [record["offset"] for record in stored] == [0, 1, 2, 3]
    assert [record["key"] for record in stored] == ["key", None, "gone", "long"], "-Z makes empty keys null"
    assert [record["payload"] for record in stored] == ["value", "no key but empty", None, "again " * 400]
    assert all(record["headers"] == ["name", "value", "empty", ""] for record in stored)
    with Raw(broker.port) as raw:
        assert read_all(raw, topic)[-1].codec == codec, "the batch of the long line; a short one may stay as it is"


def test_offsets_times_and_metadata(kcat: Kcat, fresh: Callable[[str], str]) -> None:
    topic = fresh("kcat")
    kcat.produce(topic, [b"a", b"b", b"c"])
    times = [record["ts"] for record in kcat.consume(topic, 0, 3)]
    assert kcat.consume(topic, 1, 2)[0]["payload"] == "b"
    assert [record["payload"] for record in kcat.consume(topic, -1, 1)] == ["c"], "-1: one before the end"
    assert kcat.offset(topic, -2) == 0
    assert kcat.offset(topic, -1) == 3
    assert kcat.offset(topic, times[0]) == 0
    assert kcat.offset(topic, times[2] + 3_600_000) == -1
    found = kcat.metadata(topic)
    (described,) = found["topics"]
    assert described["topic"] == topic
    (partition,) = described["partitions"]
    assert partition["leader"] == found["brokers"][0]["id"]
    assert partition["replicas"] == partition["isrs"] == [{"id": partition["leader"]}]


@pytest.mark.parametrize("codec", CODECS[:3])
def test_as_a_client_of_0_8_2(old_broker: Ottla | judge.Kafka, codec: str, fresh: Callable[[str], str]) -> None:
    kcat = Kcat(old_broker.bootstrap, "api.version.request=false", "broker.version.fallback=0.8.2")
    topic = fresh("kcat-old")
    kcat.produce(topic, [b"k:a", b"k:b", b":c" * 100], "-K:", codec=codec)
    stored = kcat.consume(topic, 1, 2)
    assert [(record["offset"], record["key"], record["payload"]) for record in stored] == [
        (1, "k", "b"),
        (2, "", ("c:" * 100)[:-1]),
    ]
    assert "ts" not in stored[0], "magic 0 has no times"
    assert kcat.offset(topic, -1) == 3
