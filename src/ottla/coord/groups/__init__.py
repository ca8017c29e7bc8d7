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

The new protocol (KIP-848), in which the broker shares out the work:

consumer.py          a consumer group: epochs, members, target assignment
consumer_member.py   one member of it, as its records say
consumer_records.py  those records, there and back
consuming.py         what members say in heartbeats, and what they are told
change.py            what a member that comes or wants something else does to the group
reconciliation.py    a member's next step towards what it is to hold
assignors.py         who is to hold what; balance.py for members that want different topics
topics.py            what a group sees of the topics; ../patterns.py their names
deadlines.py         until when members may be silent, or may take
guests.py            members with the classic protocol in a consumer group; consumer_protocol.py what they send
migration.py         groups that change from one kind to the other
describing.py        a group as ConsumerGroupDescribe tells it
"""
