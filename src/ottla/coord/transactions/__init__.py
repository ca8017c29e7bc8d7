"""Transactions: which partitions a producer has written to under a transactional id, and how that ends.

machine.py       decides, over the states in transaction.py
ending.py        gets the markers of a decided end to every partition, wherever that is led
markers.py       the marker, and how the leader of a partition writes it
verification.py  whether a batch may open a transaction in a partition
coordinator.py   puts these together over `__transaction_state`
"""
