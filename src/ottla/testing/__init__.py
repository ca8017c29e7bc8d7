"""Clusters for tests: a real ZooKeeper and brokers as processes, killed, paused, cut off and started again at will."""

from ottla.testing.cluster import Cluster
from ottla.testing.zookeeper import ZooKeeperServer

__all__ = ["Cluster", "ZooKeeperServer"]
