"""Metrics that clients push (KIP-714): which clients push what, and the last values.

subscriptions.py    the `client-metrics` resources, and the clients that each matches
receiver.py         the clients, their rate limits, and their series
otlp.py             decodes a push from protobuf (`protobuf.py`)
"""
