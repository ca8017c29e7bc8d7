"""Records: the batches that clients write, the log stores and clients read, in every format that Kafka has had.

Parsing, validation, compression and conversion, in Python or in the native crate (`native.py`). No file access.
"""
