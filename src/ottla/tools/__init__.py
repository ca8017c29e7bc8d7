"""The `ottla` command. One file holds one command (`topics.py` is `ottla topics`).

session, output     which cluster and with what security; tables, JSON and progress bars
app, start          the tree of commands; from the process to an exit code
the other files     what several commands share: offsets in a file, a moment in time, where to begin reading

They use `ottla.client`, or confluent-kafka where it has the call. `mirror` and `pipeline` load Spark's parts on demand.
"""
