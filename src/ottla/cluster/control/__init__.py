"""The controller of a cluster: one broker at a time decides who leads what, and tells the others.

The machine (`machine.py`) decides and does nothing itself. An event is handled by a generator: it yields what it wants
done (`effects.py`: read, write, send, watch), receives the result, and goes on. It has no clock and no network, so the
tests stop it after any effect and let a successor take over. `driver.py` runs it: the election, one event at a time,
the watches, a queue of requests for each broker.

    states.py          what a partition and a replica can be, and which changes are legal
    memory.py          what the controller remembers: brokers, topics, assignments, leaders
    effects.py         what a step may ask for
    events.py          what can happen
    context.py         what the steps of one event share
    batch.py           the requests of one event, gathered by broker; messages.py puts them on the wire
    ledger.py          writes to the store, each guarded by the controller's epoch
    elections.py       who leads next
    partitions.py      partitions: new, online, offline
    replicas.py        replicas: new, online, offline, deleted
    brokers.py         brokers that come, go and stop in good order; folders that fail
    topics.py          topics that come and grow
    deletions.py       topics that go
    reassignments.py   partitions that move
    strays.py          replicas that a move took away while their broker was gone
    preferred.py       leaders asked for: by request, by an old tool, by imbalance
    insync.py          changes of the in-sync replicas
    machine.py         what to do about an event; taking office

    office.py          who is controller, and how to become it
    engine.py          one event at a time: queue, watches, timers, answers
    performer.py       reads and writes; channel.py sends requests to one broker until it answers
    changes.py         what any broker may write: options, topics that are missing
    driver.py          all of it behind `Commands`; awaiting.py waits until this broker knows what was done
    departure.py       a broker that stops asks the controller first

The law of the store: the znode is written before anybody is told, and every write checks the controller epoch. So
whatever a controller leaves half done, its successor reads and finishes.
"""
