"""Groups of consumers and the offsets they commit: one GroupMachine per partition of `__consumer_offsets`.

machine.py   who is asked for: finds the group of a request, keeps the groups' records and timers
group.py     what every kind of group has in common
classic.py   a group whose members share out the work among themselves: generations and rebalances
joining.py   who may join such a group, and what a join leads to
roster.py    its members, and what they have in common; member.py: one of them
consumer.py  a group to whose members the broker shares it out (KIP-848); consuming.py: its heartbeats
migration.py from the one kind to the other and back; guests.py: members of the one kind in a group of the other
offsets.py   what groups have committed, also in transactions that are still open
commits.py   the operations on committed offsets
outcome.py   what an operation leads to, collected on the way
"""
