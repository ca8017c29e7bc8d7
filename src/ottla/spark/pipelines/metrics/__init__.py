"""Measurements of hosts and applications: windows, percentiles, alerts.

pipeline    the query: windows, alerts, and what is put aside
machines    input: generated hosts, or this machine
"""

from ottla.spark.pipelines.metrics.pipeline import PIPELINE
from ottla.spark.runner import main

__all__ = ["PIPELINE"]

if __name__ == "__main__":  # spark-submit takes a file; this is the package's
    main(PIPELINE)
