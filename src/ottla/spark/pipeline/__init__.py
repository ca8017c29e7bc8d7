"""What pipelines are made of: import from here. The files say how runs are started, watched, stopped and resumed."""

from ottla.spark.pipeline.pipeline import Option, Pipeline, Run, Wrong, main, nearest

__all__ = ["Option", "Pipeline", "Run", "Wrong", "main", "nearest"]
