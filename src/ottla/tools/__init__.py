"""The command line: topics, configs, produce, consume, dump, perf. They speak to clusters through confluent-kafka."""
