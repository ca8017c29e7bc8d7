"""Groups of consumers and the offsets they commit: one GroupMachine per partition of `__consumer_offsets`.

machine.py   who is asked for: finds the group of a request, keeps the groups' records and timers
group.py     what every kind of group has in common
classic.py   a group whose members share out the work among themselves: generations and rebalances
joining.py   who may join such a group, and what a join leads to
member.py    one member of it
offsets.py   what groups have committed, also in transactions that are still open
commits.py   the operations on committed offsets
"""
