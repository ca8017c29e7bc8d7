"""Articles of many feeds: cleaned, deduplicated, recommended by interest.

pipeline    the three stages, each a query from topic to topic
markup      HTML as plain text
feeds       real input: RSS and Atom, from files and addresses
newsroom    generated input: articles and users
"""

from ottla.spark.pipelines.articles.pipeline import PIPELINE
from ottla.spark.runner import main

__all__ = ["PIPELINE"]

if __name__ == "__main__":  # spark-submit takes a file; this is the package's
    main(PIPELINE)
