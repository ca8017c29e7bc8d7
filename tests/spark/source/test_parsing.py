"""The meaning of options: the forms of Spark's own Kafka source, and an error for everything else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from ottla.client.cluster import TopicPartition
from ottla.spark.source import parsing
from ottla.spark.source.parsing import Offsets, Time, Times

if TYPE_CHECKING:
    from collections.abc import Callable

ZERO, ONE = TopicPartition("visits", 0), TopicPartition("visits", 1)


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (parsing.string, " a:1,b:2 ", "a:1,b:2"),
        (parsing.boolean, "TRUE", True),
        (parsing.boolean, " false ", False),
        (parsing.integer(1), "17", 17),
        (parsing.integer(-2), "-2", -2),
        (parsing.isolation, "read_committed", True),
        (parsing.isolation, "READ_UNCOMMITTED", False),
        (parsing.duration_ms, "15m", 900_000),
        (parsing.duration_ms, "10 s", 10_000),
        (parsing.duration_ms, "1500", 1500),
        (parsing.duration_ms, "2h", 7_200_000),
        (parsing.topics, " b, a ,,b", ("b", "a")),
        (parsing.pattern, "visits.*", "visits.*"),
        (parsing.partitions, '{"visits":[1,0,1]}', (ZERO, ONE)),
        (parsing.offsets, "Earliest", "earliest"),
        (parsing.offsets, " latest", "latest"),
        (parsing.offsets, '{"visits":{"0":23,"1":-2}}', Offsets({ZERO: 23, ONE: -2})),
        (parsing.offsets, '{"visits":{"0":"23"}}', Offsets({ZERO: 23})),
        (parsing.times, '{"visits":{"0":1700000000000}}', Times({ZERO: 1_700_000_000_000})),
        (parsing.moment, "1700000000000", Time(1_700_000_000_000)),
    ],
)
def test_a_text_is_the_value_that_spark_would_read(read: Callable[[str], object], text: str, value: object) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (parsing.string, "  ", "not empty"),
        (parsing.boolean, "yes", "true or false"),
        (parsing.integer(1), "0", "at least 1"),
        (parsing.integer(1), "ten", "a whole number"),
        (parsing.integer(1), "1.0", "a whole number"),
        (parsing.integer(1, 5), "6", "between 1 and 5"),
        (parsing.choice("error", "latest"), "earliest", "error or latest"),
        (parsing.duration_ms, "15 minutes", "15m"),
        (parsing.duration_ms, "soon", "500ms"),
        (parsing.topics, " , ", "one topic"),
        (parsing.pattern, "a(", "regular expression"),
        (parsing.pattern, "[a-z&&[^b]]", "regular expression"),
        (parsing.partitions, "visits", '{"visits":[0,1]'),
        (parsing.partitions, "{}", '{"visits":[0,1]'),
        (parsing.partitions, '{"visits":0}', '{"visits":[0,1]'),
        (parsing.partitions, '{"visits":[true]}', '{"visits":[0,1]'),
        (parsing.offsets, "first", "earliest, latest, or JSON"),
        (parsing.offsets, "{}", "earliest, latest, or JSON"),
        (parsing.offsets, '{"visits":{"0":-3}}', "-2 is earliest"),
        (parsing.offsets, '{"visits":{"0":1.5}}', "JSON"),
        (parsing.offsets, '{"visits":[0]}', "JSON"),
        (parsing.offsets, '{"visits":{"first":1}}', "JSON"),
        (parsing.offsets, '{"visits":{"0":99999999999999999999}}', "JSON"),
        (parsing.times, '{"visits":{"0":99999999999999999999}}', "since 1970"),
        (parsing.times, '{"visits":{"0":-1}}', "since 1970"),
        (parsing.times, "latest", "milliseconds"),
        (parsing.moment, "2023-01-01", "a whole number"),
    ],
)
def test_another_text_is_answered_with_what_should_stand_there(
    read: Callable[[str], object], text: str, expected: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        read(text)
