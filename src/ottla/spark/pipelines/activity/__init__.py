"""What visitors of a site do, as it happens and day by day.

pipeline    the queries: sessions and minutes to topics, events to daily tables
pages       the report as HTML, with the plots of `plots`
site        made-up visitors
"""

from ottla.spark.pipelines.activity.pipeline import PIPELINE
from ottla.spark.runner import main

__all__ = ["PIPELINE"]

if __name__ == "__main__":  # spark-submit takes a file, and this is the one of the package
    main(PIPELINE)
