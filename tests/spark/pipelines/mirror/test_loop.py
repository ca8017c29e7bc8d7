"""The loop of a mirror, piece by piece."""

from __future__ import annotations

from ottla.client.cluster import TopicPartition
from ottla.spark.pipelines.mirror.loop import share_out
from ottla.spark.pipelines.mirror.mirroring import PartitionTask


def test_work_is_shared_out_evenly() -> None:
    sizes = [1000, 10, 500, 490, 5, 5]
    parts = [
        PartitionTask(TopicPartition("t", i), TopicPartition("t", i), "id", 0, size) for i, size in enumerate(sizes)
    ]
    lanes = share_out(parts, {}, 2)
    assert sorted(sum(part.stop for part in lane) for lane in lanes) == [1005, 1005]
    assert sorted(part.where.partition for lane in lanes for part in lane) == list(range(6))
    assert len(share_out(parts[:1], {}, 4)) == 1
