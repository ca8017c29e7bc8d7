"""Transactions: which partitions a producer has written to under a transactional id, and how that ends."""
