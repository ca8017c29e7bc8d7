"""Sockets: listeners, connections, and the way from a request's bytes to a handler and back to the client.

`wire/` says what the bytes mean and `handlers/` what to answer. Requests to other brokers go out from
`cluster/peers.py`.
"""
