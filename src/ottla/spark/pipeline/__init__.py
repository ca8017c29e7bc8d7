"""The public names of `ottla.spark.runner`, for files of pipelines to import."""

from ottla.spark.runner import Option, Pipeline, Run, UsageError, main
from ottla.spark.runner.generating import Record

__all__ = ["Option", "Pipeline", "Record", "Run", "UsageError", "main"]
