"""How PySpark finds Ottla's data source by itself: it imports every package whose name begins with `pyspark_`."""

from ottla.spark.source.data_source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
