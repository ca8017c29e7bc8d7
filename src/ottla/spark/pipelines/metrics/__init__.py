"""Measurements of hosts and applications: windows, percentiles, alerts. All of it is in `pipeline`."""

from ottla.spark.pipelines.metrics.pipeline import PIPELINE
from ottla.spark.runner import main

__all__ = ["PIPELINE"]

if __name__ == "__main__":  # spark-submit takes a file, and this is the one of the package
    main(PIPELINE)
