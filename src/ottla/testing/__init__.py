"""Clusters for tests: a real ZooKeeper and brokers as processes, which tests can kill, pause, isolate and restart.

Also one broker with TLS and SASL, with its own certificates.
"""

from ottla.testing.cluster import Cluster
from ottla.testing.secured import SecuredBroker
from ottla.testing.zookeeper import ZooKeeperServer

__all__ = ["Cluster", "SecuredBroker", "ZooKeeperServer"]
