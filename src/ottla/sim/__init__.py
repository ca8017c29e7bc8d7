"""Whole clusters in one process, on time, network, disks and a ZooKeeper that a seed decides. `python -m ottla.sim`.

loop        an event loop with virtual time, and processes that can be stopped, paused and killed
clock       what a process takes for the time
disk        files that may lose or tear what no sync has covered, and run full
keeper      a model of ZooKeeper: sessions, watches, answers that get lost
net         connections between hosts: late, cut one way or both, reset
node        a real broker on all of these
clients     producers and consumers that remember what they were told
transactions  transactional clients, of which atomic knows what they may see
cast        who is in a story
checks      what must hold, looked at from outside
world       a cluster, its clients, and what happens to them
trial       one seed from beginning to end
"""
