"""Client quotas: how much a user, a client id or an address may use of a broker, as Apache Kafka measures it.

    entity.py      whom a quota is for, which keys there are, and where they are stored
    rate.py        a rate over a window of samples, and a bucket of tokens
    limits.py      all quotas of a broker, and which of them holds for a client
    sensors.py     what each client has used, in bounded memory
    quotas.py      the machine: record what was used, learn for how long to throttle
    mutations.py   the quota of one request that changes topics

Pure: time comes in as milliseconds that never go back. `net/enforcement.py` has requests and connections measured by
it. A broker without quotas calls none of it.
"""
