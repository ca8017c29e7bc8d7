"""What visitors of a site do, live and day by day.

pipeline    the queries: sessions and minutes to topics, events to daily tables
pages       the report as HTML, with the plots of `plots`
site        generated visitors
"""

from ottla.spark.pipelines.activity.pipeline import PIPELINE
from ottla.spark.runner import main

__all__ = ["PIPELINE"]

if __name__ == "__main__":  # spark-submit takes a file; this is the package's
    main(PIPELINE)
