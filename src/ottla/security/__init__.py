"""Who may do what: access control lists and the authorizer that judges by them.

What each API needs is in `handlers/gates`; how a client proves who it is, in `net`.
"""
