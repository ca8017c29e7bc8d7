"""Runs pipelines: from a command line to an exit code, with the run's state, progress, signals and Spark session.

The built-in pipelines are in `ottla.spark.pipelines`. Users' own files import from `ottla.spark.pipeline`.
"""

from ottla.spark.runner.pipeline import Option, Pipeline, Run, UsageError, main, nearest

__all__ = ["Option", "Pipeline", "Run", "UsageError", "main", "nearest"]
