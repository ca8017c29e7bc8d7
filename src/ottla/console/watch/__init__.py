"""Collect the state of a cluster in the background, as immutable snapshots.

links       one thread and one connection per broker, so that a hanging broker delays no other
asking      the requests to one broker in one round, with plain values as results
question    all requests to one broker, and its answers
gathering   the rounds: which broker to ask for what, how often, and how answers become a snapshot
watching    the thread that runs the rounds
snapshot    what the pages see
arrivals    when offsets were written, for lag in seconds
lag         the lag of each group
attention   what is wrong, and what to do about it
"""
