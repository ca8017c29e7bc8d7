"""State rebuilt from a compacted topic, as a table. All of it is in `pipeline`."""

from ottla.spark.pipelines.restore.pipeline import PIPELINE
from ottla.spark.runner import main

__all__ = ["PIPELINE"]

if __name__ == "__main__":  # spark-submit takes a file; this is the package's
    main(PIPELINE)
