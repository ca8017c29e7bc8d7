"""Transactions: which partitions a producer has written to under a transactional id, and how transactions end.

machine.py       makes the decisions; transaction.py: the state of one transactional id
ending.py        delivers the markers of a decided end to the leaders of all partitions
markers.py       the marker, and how the leader of a partition writes it
verification.py  whether a batch may open a transaction in a partition
coordinator.py   connects these on top of `__transaction_state`
"""
