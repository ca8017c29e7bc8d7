"""Client quotas: how much of a broker a user, a client id or an address may use, measured as in Apache Kafka.

    entity.py      the entities of quotas, the quota keys, and where they are stored
    rate.py        a rate over a window of samples, and a token bucket
    limits.py      all quotas of a broker, and which of them applies to a client
    sensors.py     what each client has used, in bounded memory
    quotas.py      records usage and computes throttle times
    mutations.py   the quota of one request that changes topics

No I/O and no clock: times are arguments, in milliseconds that never go back. `net/enforcement.py` applies it to
requests and connections. A broker without quotas does not call it.
"""
