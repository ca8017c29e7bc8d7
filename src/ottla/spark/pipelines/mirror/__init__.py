"""Topics to another cluster as whole record batches, exactly once.

pipeline        its options, and the Spark tasks that copy; `ottla mirror` copies without Spark
loop            the rounds: what is new, and who copies it
mirroring       a task: one transaction after another, each with its position committed in it
copying         the original batches with a new header; `pushing` sends them
roster          topics and their copies at the target; `provenance` records where a topic came from
translation     offsets of one side as offsets of the other; `following` moves groups by it
endpoint        a cluster and how to reach it
"""

from ottla.spark.pipelines.mirror.pipeline import PIPELINE
from ottla.spark.runner import main

__all__ = ["PIPELINE"]

if __name__ == "__main__":  # spark-submit takes a file; this is the package's
    main(PIPELINE)
