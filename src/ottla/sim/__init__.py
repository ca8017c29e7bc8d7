"""Deterministic simulation of whole clusters in one process: a seed controls time, network, disks and ZooKeeper.

Run it with `python -m ottla.sim`.

loop          an event loop with virtual time, and processes that can be stopped, paused and killed
clock         the clock of a process
disk          files that may lose or tear unsynced writes, and disks that run full
zookeeper     a model of ZooKeeper: sessions, watches, lost responses
net           connections between hosts: slow, cut in one or both directions, reset
node          a real broker on top of these
clients       producers and consumers that record every response
members       a consumer group
transactions  producers that fence each other, and a read_committed reader; `atomic` checks what they see
seasons       a topic that is created, moved, deleted and created again
cast          the clients of a run
trouble       injected failures
operations    replicas that move, configs that change, files and folders that are spoiled
checks        invariants, checked from outside the broker
world         a cluster, its clients and its failures
trial         one seed from beginning to end
"""
