"""`make run`: a site's traffic through Ottla and Spark, until Ctrl-C. See `__main__`.

parts       visitors and pipelines, each in a thread that is watched
watch       what there is in a cluster and how it moves; `table` draws it
summary     what came out, counted at the end
"""
