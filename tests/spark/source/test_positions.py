"""Which partitions, from where to where: the words of the options on Ottla and on Apache Kafka."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest
from compat.clients import Record
from compat.confluent import Confluent
from spark import filling

from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.failure import Failed
from ottla.spark.source import positions
from ottla.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judge import Kafka
    from process import Ottla

STEP_MS: Final = 1000
COUNTS: Final = {0: 10, 1: 5, 2: 0}
PLACES: Final = [TopicPartition("placed", index) for index in COUNTS]
LAST_MS: Final = filling.NOW_MS + 9 * STEP_MS


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def broker(request: pytest.FixtureRequest) -> Ottla | Kafka:
    """Ten, five and no records, a second apart."""
    found: Ottla | Kafka = request.getfixturevalue(request.param)
    filling.create(found, "placed", len(COUNTS))
    filling.create(found, "placed-too", 1)
    client = Confluent(found.bootstrap)
    for partition, count in COUNTS.items():
        records = [Record(filling.NOW_MS + number * STEP_MS, None, b"x") for number in range(count)]
        client.produce("placed", records, partition=partition)
    client.close()
    return found


@pytest.fixture
def cluster(broker: Ottla | Kafka) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as found:
        yield found


def options(**given: str) -> SourceOptions:
    chosen = given if {"subscribe", "subscribePattern", "assign"} & given.keys() else {"subscribe": "placed", **given}
    return SourceOptions.load({"kafka.bootstrap.servers": "unused:1", **chosen})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"subscribe": "placed"}, PLACES),
        ({"subscribe": "placed-too,placed"}, [*PLACES, TopicPartition("placed-too", 0)]),
        ({"subscribePattern": "placed.*"}, [*PLACES, TopicPartition("placed-too", 0)]),
        ({"subscribePattern": "^place$"}, []),
        ({"subscribePattern": "laced-t"}, [TopicPartition("placed-too", 0)]),
        ({"assign": '{"placed":[2,0]}'}, [PLACES[0], PLACES[2]]),
    ],
)
def test_partitions_are_chosen(cluster: Cluster, given: dict[str, str], expected: list[TopicPartition]) -> None:
    found = positions.select_partitions(cluster, options(**given))
    assert found.partitions == expected
    assert found.ids.keys() == {where.topic for where in expected}
    assert all(found.ids.values())


def test_a_pattern_never_means_the_topics_of_the_cluster_itself(cluster: Cluster, broker: Ottla | Kafka) -> None:
    with Cluster(broker.bootstrap) as other:
        other.coordinator("some-group", 0)  # now __consumer_offsets exists
    found = positions.select_partitions(cluster, options(subscribePattern=".*")).partitions
    assert PLACES[0] in found
    assert not [where for where in found if where.topic.startswith("__")]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"subscribe": "placed,absent,gone"}, "topics absent, gone do not exist"),
        ({"subscribe": "absent"}, "topic absent does not exist"),
        ({"assign": '{"placed":[0,3]}'}, "topic placed has partitions 0 to 2, not 3: correct assign"),
        ({"assign": '{"placed":[-1]}'}, "topic placed has partitions 0 to 2, not -1: correct assign"),
        ({"assign": '{"absent":[0]}'}, "topic absent does not exist"),
    ],
)
def test_what_is_not_there_is_named(cluster: Cluster, given: dict[str, str], sentence: str) -> None:
    with pytest.raises(Failed) as caught:
        positions.select_partitions(cluster, options(**given))
    assert sentence in str(caught.value)


def by_partition(**numbers: int) -> str:
    return json.dumps({"placed": {name.removeprefix("p"): number for name, number in numbers.items()}})


@pytest.mark.parametrize(
    ("given", "starts"),
    [
        ({}, [0, 0, 0]),
        ({"startingOffsets": "latest"}, [10, 5, 0]),
        ({"startingOffsets": by_partition(p0=3, p1=-1, p2=-2)}, [3, 5, 0]),
        ({"startingTimestamp": "0", "startingOffsetsByTimestampStrategy": "latest"}, [0, 0, 0]),
        ({"startingTimestamp": f"{LAST_MS - 500}", "startingOffsetsByTimestampStrategy": "latest"}, [9, 5, 0]),
        (
            {
                "startingOffsetsByTimestamp": by_partition(p0=filling.NOW_MS + 1, p1=filling.NOW_MS, p2=5),
                "startingOffsetsByTimestampStrategy": "LATEST",
            },
            [1, 0, 0],
        ),
    ],
)
def test_starts_are_found(cluster: Cluster, given: dict[str, str], starts: list[int]) -> None:
    assert positions.starts(cluster, options(**given), PLACES) == dict(zip(PLACES, starts, strict=True))


@pytest.mark.parametrize(
    ("given", "stops"),
    [
        ({}, [10, 5, 0]),
        ({"endingOffsets": by_partition(p0=3, p1=-1, p2=0)}, [3, 5, 0]),
        ({"endingTimestamp": f"{filling.NOW_MS + 2 * STEP_MS}"}, [2, 2, 0]),
        ({"endingTimestamp": f"{LAST_MS + 1}"}, [10, 5, 0]),
        ({"endingOffsetsByTimestamp": by_partition(p0=LAST_MS, p1=0, p2=0)}, [9, 0, 0]),
    ],
)
def test_stops_are_found(cluster: Cluster, given: dict[str, str], stops: list[int]) -> None:
    assert positions.stops(cluster, options(**given), PLACES) == dict(zip(PLACES, stops, strict=True))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"startingTimestamp": f"{LAST_MS + 1}"}, f"no record at or after timestamp {LAST_MS + 1}"),
        (
            {"startingOffsets": by_partition(p0=1, p1=1)},
            "startingOffsets does not name placed partition 2, which is read: name every partition, with -2 ",
        ),
        (
            {"startingOffsets": by_partition(p0=1, p1=1, p2=0, p3=0)},
            "startingOffsets names placed partition 3, which is not read: leave it out",
        ),
        (
            {"startingOffsetsByTimestamp": by_partition(p0=1)},
            "startingOffsetsByTimestamp does not name placed partition 1, which is read: name every partition",
        ),
    ],
)
def test_a_start_that_cannot_be_is_refused(cluster: Cluster, given: dict[str, str], sentence: str) -> None:
    with pytest.raises(Failed) as caught:
        positions.starts(cluster, options(**given), PLACES)
    assert sentence in str(caught.value)
