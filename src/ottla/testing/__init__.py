"""Clusters for tests: a real ZooKeeper and brokers as processes, killed, paused, cut off and started again at will.

And one broker with TLS and logins, with certificates of its own.
"""

from ottla.testing.cluster import Cluster
from ottla.testing.secured import SecuredBroker
from ottla.testing.zookeeper import ZooKeeperServer

__all__ = ["Cluster", "SecuredBroker", "ZooKeeperServer"]
