"""The layout of a cluster: brokers with racks, partitions with replicas, and their sizes on disk.

layout = read_layout(cluster)
layout.brokers[1].rack, layout.partitions["orders", 0].isr
replica_sizes(cluster)["orders", 0][1]      # bytes on broker 1
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.client.failure import check
from ottla.wire.messages.folders import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.client.cluster import Cluster
    from ottla.client.placement import Place, Placement


class BrokerNode(NamedTuple):
    host: str
    port: int
    rack: str | None


class PartitionLayout(NamedTuple):
    leader: int  # -1: none
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


class Layout(NamedTuple):
    brokers: dict[int, BrokerNode]
    controller: int
    partitions: dict[Place, PartitionLayout]
    internal: set[str]  # names of internal topics

    @property
    def placement(self) -> Placement:
        return {place: one.replicas for place, one in self.partitions.items()}

    @property
    def racks(self) -> dict[int, str | None]:
        return {broker: node.rack for broker, node in self.brokers.items()}


class Folder(NamedTuple):
    """One log folder of one broker."""

    broker: int
    path: str
    error_code: int
    total: int | None  # bytes of its disk; None: the broker is too old
    usable: int | None
    replicas: dict[Place, int]  # bytes of each replica in it


def read_layout(cluster: Cluster, topics: Iterable[str] | None = None) -> Layout:
    """The layout of these topics, or of all. A topic that does not exist is Refused."""
    names = None if topics is None else sorted(set(topics))
    wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)

    def attempt() -> Layout:
        answer = cluster.anyone().ask(request, MetadataResponse)
        check("the cluster", answer.error_code)
        partitions: dict[Place, PartitionLayout] = {}
        for topic in sorted(answer.topics, key=lambda topic: topic.name or ""):
            check(f"topic {topic.name}", topic.error_code)
            for one in sorted(topic.partitions, key=lambda one: one.partition_index):
                partitions[topic.name or "", one.partition_index] = PartitionLayout(
                    one.leader_id, tuple(one.replica_nodes), tuple(one.isr_nodes), tuple(one.offline_replicas)
                )
        brokers = {one.node_id: BrokerNode(one.host, one.port, one.rack) for one in answer.brokers}
        internal = {topic.name or "" for topic in answer.topics if topic.is_internal}
        return Layout(dict(sorted(brokers.items())), answer.controller_id, partitions, internal)

    return cluster.retrying(attempt, what="asking for the layout of the cluster")


def read_folders(cluster: Cluster) -> list[Folder]:
    """The log folders of all brokers."""
    found: list[Folder] = []
    for broker, connection in sorted(cluster.brokers().items()):
        answer = connection.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        check(f"the log folders of broker {broker}", answer.error_code)
        for folder in answer.results:
            replicas = {
                (topic.name, one.partition_index): one.partition_size
                for topic in folder.topics
                for one in topic.partitions
                if not one.is_future_key
            }
            total = None if folder.total_bytes < 0 else folder.total_bytes
            usable = None if folder.usable_bytes < 0 else folder.usable_bytes
            found.append(Folder(broker, folder.log_dir, folder.error_code, total, usable, replicas))
    return found


def replica_sizes(cluster: Cluster) -> dict[Place, dict[int, int]]:
    """Bytes of every replica, by partition and broker."""
    sizes: dict[Place, dict[int, int]] = {}
    for folder in read_folders(cluster):
        for place, size in folder.replicas.items():
            sizes.setdefault(place, {})[folder.broker] = size
    return sizes
