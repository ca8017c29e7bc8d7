"""The reading half of the data source: topics as tables and streams. PySpark's entry point is `data_source`."""
