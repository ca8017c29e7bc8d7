"""How PySpark finds Ottla's data source by itself: it imports every package whose name begins with `pyspark_`."""

from ottla.spark.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
