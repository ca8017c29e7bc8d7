"""Records: the batches that clients write, the log keeps and clients read, in every format Kafka has had.

Parsing, validation, compression and conversion, in Python or in the native crate (`native.py`). It touches no files.
"""
