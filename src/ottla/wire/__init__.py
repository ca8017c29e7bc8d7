"""The Kafka protocol: messages as declared classes, and the code that turns them into bytes and back.

schema.py     how a message is declared; messages/ has the declarations, a file per family of APIs
codec.py      compiles a decoder and an encoder for a message and version, from sources by decoding.py and encoding.py
frame.py      the headers of requests and responses
apis.py       every API by its key; table.py generates docs/protocol.md from it

No sockets here, and no handling of requests: those are in `net/` and `handlers/`.
"""
