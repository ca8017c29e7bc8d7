"""The writing half of the data source: rows to topics, at least once or exactly once."""
