"""What a cluster is doing, asked for in the background and kept as an immutable snapshot.

links       one thread and one connection for each broker, so that a broker that hangs holds up nobody else
asking      what is asked of one broker in one round, as plain values
question    all questions to one broker, and its answers
gathering   the rounds: whom to ask for what, how often, and what to make of the answers
watching    the thread that makes them
snapshot    what the pages see
arrivals    when offsets were written, for lag in seconds
lag         how far each group is behind
attention   what is wrong, and what to do about it
"""
