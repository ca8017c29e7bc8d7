"""Topics as tables and streams: the reading half of the data source. `data_source` is where PySpark comes in."""
