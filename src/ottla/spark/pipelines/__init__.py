"""The pipelines that come with Ottla, a package each: `pipeline.py` defines it, the other files are its parts."""
