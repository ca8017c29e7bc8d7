"""Who a client is, how it proves that, and what it may do.

    principal       who a connection belongs to; everybody is User:ANONYMOUS until something else is proved
    certificates    what a TLS listener shows and whom it trusts; read again when a file changes
    stream          TLS between the bytes of a socket and those of the protocol, without waiting
    login           the SASL exchange of one connection, mechanism by mechanism
    acl             access control lists, and `authorizer`, which judges by them

Nothing here names a class to load, and no secret is in any message. What each API needs is in `handlers/gates`; where
the lists are kept, in `cluster/acl_store.py`.
"""
