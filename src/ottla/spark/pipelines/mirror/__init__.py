"""Topics to another cluster as whole record batches, exactly once.

pipeline        its options, and the tasks of Spark that copy; `ottla mirror` copies without Spark
loop            the rounds: what is new, and who copies it
mirroring       a task: one transaction after the other, with the position committed in it
copying         batches as they came, with a new header; `pushing` sends them
roster          topics and their twins at the target; `provenance` says where a topic came from
translation     offsets of one side as offsets of the other; `following` moves groups by it
endpoint        a cluster and how to reach it
"""

from ottla.spark.pipelines.mirror.pipeline import PIPELINE
from ottla.spark.runner import main

__all__ = ["PIPELINE"]

if __name__ == "__main__":  # spark-submit takes a file, and this is the one of the package
    main(PIPELINE)
