"""Rows to topics: the writing half of the data source, at least once or exactly once."""
