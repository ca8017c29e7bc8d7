"""The cluster's metadata: topics, brokers and configs, how they are stored, and how they are changed.

The rest of a broker reads `image.py`. `standalone.py` is the controller of a single node, `control/` that of a cluster.
Connections between brokers are in `peers.py`, partitions in `replica/`.
"""
