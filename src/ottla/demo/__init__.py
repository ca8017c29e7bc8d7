"""`make run`: a site's traffic through Ottla and Spark, until Ctrl-C. See `__main__`.

parts       visitors and pipelines, each in a monitored thread
watch       topics and groups of a cluster, with rates; `table` draws them
summary     the results, counted at the end
"""
