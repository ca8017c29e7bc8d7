"""Groups of consumers and the offsets they commit: one GroupMachine per partition of `__consumer_offsets`.

machine.py    finds the group of a request, applies the groups' records, handles their timers
group.py      what every kind of group has in common
offsets.py    committed offsets, also those of open transactions; commits.py: the operations on them
outcome.py    collects records, replies and timers during an operation

The classic protocol, in which a member (the leader) assigns the partitions:

classic.py    a group: generations and rebalances
joining.py    who may join, and what a join does
roster.py     the members, and what they have in common; member.py: one of them

The new protocol (KIP-848), in which the broker assigns them:

consumer.py          a consumer group: epochs, members, target assignment
consumer_member.py   one member of it, as in its records
consumer_records.py  encodes and decodes those records
consuming.py         heartbeats and their answers
change.py            how a new member or a new subscription changes the group
reconciliation.py    a member's next step towards its target assignment
assignors.py         computes target assignments; balance.py: for members with different subscriptions
topics.py            topic ids, a hash of their metadata, regular expressions; ../patterns.py: matching those
deadlines.py         deadlines of members for heartbeats, revocations, joins and syncs
guests.py            members with the classic protocol in a consumer group; consumer_protocol.py what they send
migration.py         groups that change from one kind to the other
describing.py        the answer to ConsumerGroupDescribe
"""
