"""The cluster's metadata: what topics, brokers and options there are, where that is stored, and who may change it.

`image.py` is what the rest of a broker reads. `standalone.py` decides for one node, `control/` for a cluster. How
brokers talk to each other is in `peers.py`; what they do with the partitions is in `replica/`.
"""
