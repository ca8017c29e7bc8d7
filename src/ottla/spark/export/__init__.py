"""Topics to tables of Parquet files or Delta: what the pipeline `export` is made of."""
