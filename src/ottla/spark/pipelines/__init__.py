"""The pipelines that come with Ottla, a file each: read one from top to bottom, then write your own."""
