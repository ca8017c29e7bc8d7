"""Topics to a table of Parquet files or a Delta table, each record once.

pipeline        the rounds: new records, written by Spark's tasks, committed by the driver
exporting       a task: records to Parquet, without becoming rows
letters         records that do not fit into the table, to a separate topic
ledger          the commits of a folder of Parquet files; `delta_ledger` those of a Delta table
"""

from ottla.spark.pipelines.export.pipeline import PIPELINE
from ottla.spark.runner import main

__all__ = ["PIPELINE"]

if __name__ == "__main__":  # spark-submit takes a file; this is the package's
    main(PIPELINE)
