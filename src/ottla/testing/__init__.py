"""Clusters for tests: a real ZooKeeper and brokers as processes, killed, paused, cut off and started again at will."""
