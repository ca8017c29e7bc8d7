"""The logs on disk: segments and their indexes, recovery, retention, compaction, and all logs of a broker (`store.py`).

A log knows its directory, its producers and its leader epochs. It does not know who leads the partition, who follows
it, or what is committed: `replica/` tells it the high watermark. The format of the records is in `records/`.
"""
