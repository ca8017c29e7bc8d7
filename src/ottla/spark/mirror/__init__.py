"""Topics copied to another cluster as whole record batches: what the pipeline `mirror` is made of."""
