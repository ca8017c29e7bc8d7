"""Metrics that clients push (KIP-714): who is to push what, and what they have pushed last.

subscriptions.py    the `client-metrics` resources, and whom each of them matches
receiver.py         the clients, when they may ask and push again, and their series
otlp.py             what a push says, read from its protobuf (`protobuf.py`)
"""
