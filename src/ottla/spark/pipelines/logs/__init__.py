"""Log files of many hosts, through one topic, into a table by day and host.

pipeline    the query from the topic to the table
shipping    lines of files to the topic, each once
archive     the table, and how its small files are compacted
"""

from ottla.spark.pipelines.logs.pipeline import PIPELINE
from ottla.spark.runner import main

__all__ = ["PIPELINE"]

if __name__ == "__main__":  # spark-submit takes a file; this is the package's
    main(PIPELINE)
