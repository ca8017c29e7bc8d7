"""What runs pipelines: from a command line to an exit code, with the run's state, progress, signals and Spark session.

The pipelines that come with Ottla are in `ottla.spark.pipelines`. Files of users import from `ottla.spark.pipeline`.
"""

from ottla.spark.runner.pipeline import Option, Pipeline, Run, Wrong, main, nearest

__all__ = ["Option", "Pipeline", "Run", "Wrong", "main", "nearest"]
