"""A loop of jobs that looks like a query from outside, and how long it retries after failures."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed
from ottla.spark.runner.meter import Meter
from ottla.spark.runner.rounds import Rounds, spread
from ottla.spark.trouble import Trouble, WorkerLost

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
    with pytest.raises(WorkerLost):
        spread(spark, [1, 2], die)
    with pytest.raises(Failed, match="so it is") as raised:
        spread(spark, [1, 2], fail)
    assert not isinstance(raised.value, WorkerLost)


def double(number: int) -> int:
    return 2 * number


def die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(number: int) -> None:
    raise ValueError("so it is")
