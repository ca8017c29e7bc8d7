"""Whole clusters in one process, on time, network, disks and a ZooKeeper that a seed decides. `python -m ottla.sim`.

loop          an event loop with virtual time, and processes that can be stopped, paused and killed
clock         what a process takes for the time
disk          files that may lose or tear what no sync has covered, and run full
zookeeper     a model of ZooKeeper: sessions, watches, answers that get lost
net           connections between hosts: late, cut one way or both, reset
node          a real broker on all of these
clients       producers and consumers that remember what they were told
members       a consumer group
transactions  producers that fence each other, and a reader of what is committed; `atomic` knows what they may see
seasons       a topic that is made, moved, deleted and made again
cast          who is in a story
trouble       what happens to the cluster
checks        what must hold, looked at from outside
world         a cluster, its clients, and what happens to them
trial         one seed from beginning to end
"""
