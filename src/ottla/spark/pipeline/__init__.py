"""What the file of a pipeline imports: the public face of `ottla.spark.runner`, which has the code."""

from ottla.spark.runner import Option, Pipeline, Run, Wrong, main
from ottla.spark.runner.generating import Record

__all__ = ["Option", "Pipeline", "Record", "Run", "Wrong", "main"]
