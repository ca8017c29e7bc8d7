"""`make run`: a site's traffic through Ottla and Spark, until Ctrl-C. See `__main__`."""
