"""Ottla against Apache Kafka: the same load on the same cores in the same run. Start with `python bench/run.py`."""
