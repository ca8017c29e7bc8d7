"""The logs on disk: segments and their indexes, recovery, retention, compaction, and all logs of a broker (`store.py`).

A log (`log.py`) knows its directory, its producers, its leader epochs, and how much of it is on disk (`durability.py`).
A leader writes to it with `append.py` and `planned_write.py`, a follower with `replicate.py` and `truncation.py`. A log
does not know the partition's leader or followers, or what is committed: `replica/` sets its high watermark. The record
format is in `records/`.
"""
