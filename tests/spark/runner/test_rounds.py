"""A loop of jobs that looks like a query to those who watch it, and how long trouble is borne."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed
from ottla.spark.pipelines.mirror.mirroring import PartitionTask
from ottla.spark.pipelines.mirror.pipeline import share_out
from ottla.spark.runner.meter import Meter
from ottla.spark.runner.rounds import Rounds, Trouble, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rounds_are_measured_as_queries_are() -> None:
    rounds, meter = Rounds("mirror"), Meter()
    (before,) = meter.read([rounds])  # type: ignore[list-item]
    assert (before.query, before.rows, before.batch) == ("mirror", 0, None)
    where = TopicPartition("t", 0)
    for number in range(3):
        rounds.done(100, {where: 100 * number + 100}, {where: 400})
    (after,) = meter.read([rounds])  # type: ignore[list-item]
    assert (after.rows, after.batch, after.lag) == (300, 2, 100)
    assert rounds.isActive
    rounds.stop()
    assert not rounds.isActive


def test_trouble_is_borne_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Trouble(3600)
    trouble.bear("the broker is away")
    trouble.bear("the broker is away")
    assert [record.getMessage() for record in caplog.records] == ["the broker is away; trying again"]
    impatient = Trouble(-1)
    with pytest.raises(Failed, match="the broker is away"):
        impatient.bear("the broker is away")


def test_a_killed_worker_is_borne_and_an_error_is_not(spark: SparkSession) -> None:
    assert sorted(spread(spark, [1, 2, 3], double)) == [2, 4, 6]
    trouble = Trouble(3600)
    with pytest.raises(Trouble.OF_SPARK) as killed:
        spread(spark, [1, 2], die)
    trouble.bear(killed.value)
    with pytest.raises(Trouble.OF_SPARK) as raised:
        spread(spark, [1, 2], fail)
    with pytest.raises(Failed, match="so it is"):
        trouble.bear(raised.value)


def double(number: int) -> int:
    return 2 * number


def die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(number: int) -> None:
    raise ValueError("so it is")


def test_work_is_shared_out_evenly() -> None:
    sizes = [1000, 10, 500, 490, 5, 5]
    parts = [
        PartitionTask(TopicPartition("t", i), TopicPartition("t", i), "id", 0, size) for i, size in enumerate(sizes)
    ]
    lanes = share_out(parts, {}, 2)
    assert sorted(sum(part.stop for part in lane) for lane in lanes) == [1005, 1005]
    assert sorted(part.where.partition for lane in lanes for part in lane) == list(range(6))
    assert len(share_out(parts[:1], {}, 4)) == 1
