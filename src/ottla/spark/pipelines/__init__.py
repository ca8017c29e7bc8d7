"""The built-in pipelines, a package each: `pipeline.py` defines it, the other files are its parts."""
