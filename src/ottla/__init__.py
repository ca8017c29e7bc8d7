"""Ottla: Kafka in Python."""
