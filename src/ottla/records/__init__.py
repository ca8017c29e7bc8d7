"""Records: the batches that clients write, the log keeps and clients read, in every format Kafka has had."""
