"""Ottla beside Apache Kafka: the same load on the same cores in the same run. `python bench/run.py` is the way in."""
