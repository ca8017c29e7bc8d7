"""The `ottla` command. One file holds one command (`topics.py` is `ottla topics`).

session, output     connection and security options; tables, JSON and progress bars
app, start          the command tree; how a command runs and which exit code it returns
the other files     shared by several commands: offset files, points in time, where to start reading

They use confluent-kafka where it has the call, else `ottla.client`. `mirror` and `pipeline` load Spark on demand.
"""
