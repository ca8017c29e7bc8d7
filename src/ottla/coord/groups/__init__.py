"""Groups of consumers and the offsets they commit: one GroupMachine per partition of `__consumer_offsets`.

machine.py    finds the group of a request, keeps the groups' records and timers
group.py      what every kind of group has in common
offsets.py    committed offsets, also those of open transactions; commits.py: the operations on them
outcome.py    what an operation leads to, collected on the way

The classic protocol, in which a member (the leader) assigns the partitions:

classic.py    a group: generations and rebalances
joining.py    who may join, and what a join leads to
roster.py     the members, and what they have in common; member.py: one of them

The new protocol (KIP-848), in which the broker assigns them:

consumer.py          a consumer group: epochs, members, target assignment
consumer_member.py   one member of it, as its records say
consumer_records.py  those records, there and back
consuming.py         heartbeats and their answers
change.py            how a new member or a new subscription changes the group
reconciliation.py    a member's next step towards what it is to hold
assignors.py         who is to hold what; balance.py for members that want different topics
topics.py            what a group sees of the topics; ../patterns.py their names
deadlines.py         until when members must send a heartbeat, revoke, join or sync
guests.py            members with the classic protocol in a consumer group; consumer_protocol.py what they send
migration.py         groups that change from one kind to the other
describing.py        the answer to ConsumerGroupDescribe
"""
