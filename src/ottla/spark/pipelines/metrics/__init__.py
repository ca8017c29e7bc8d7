"""Measurements of hosts and applications: windows, percentiles, alerts.

pipeline    the query: windows, alerts, and what is put aside
machines    input: made-up hosts, or this machine as it is
"""

from ottla.spark.pipelines.metrics.pipeline import PIPELINE
from ottla.spark.runner import main

__all__ = ["PIPELINE"]

if __name__ == "__main__":  # spark-submit takes a file, and this is the one of the package
    main(PIPELINE)
