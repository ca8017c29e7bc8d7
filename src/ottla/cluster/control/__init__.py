"""The controller of a cluster: one broker at a time elects the leaders and manages topics, and informs the others.

The machine (`machine.py`) decides and does no I/O. A generator handles each event: it yields effects (`effects.py`:
read, write, send, watch), receives their results, and continues. It has no clock and no network, so tests can stop it
after any effect and let a successor take over. `driver.py` runs it: the controller election, one event at a time, the
watches, a queue of requests for each broker.

    states.py          states of partitions and replicas, and the legal transitions
    memory.py          the controller's view: brokers, topics, assignments, leaders
    effects.py         what a step may yield
    events.py          the events
    context.py         what the steps of one event share
    batch.py           the requests of one event, grouped by broker; messages.py encodes them
    ledger.py          writes to the store, each guarded by the controller's epoch
    elections.py       choice of the next leader
    partitions.py      partitions: new, online, offline
    replicas.py        replicas: new, online, offline, deleted
    brokers.py         brokers that join, fail and shut down; failed log directories
    topics.py          topic creation and new partitions
    deletions.py       topic deletion
    reassignments.py   partition reassignment
    strays.py          replicas removed by a reassignment while their broker was down
    preferred.py       requested leader elections: by request, by an old tool, by imbalance
    insync.py          changes of the in-sync replicas
    machine.py         event dispatch; becoming controller

    office.py          the controller election
    engine.py          one event at a time: queue, watches, timers, responses
    performer.py       reads and writes; channel.py sends requests to one broker until it answers
    changes.py         what any broker may write: configs, auto-created topics
    driver.py          all of it behind `Commands`; awaiting.py waits until this broker sees a change
    departure.py       controlled shutdown: a stopping broker asks the controller first

Invariant: the znode is written before any broker is informed, and every write checks the controller epoch. So whatever
a controller leaves unfinished, its successor reads and finishes.
"""
