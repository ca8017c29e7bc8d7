"""Who a client is, and how it proves it: certificates and TLS, SASL mechanisms, principals.

    principal       who a connection belongs to; everybody is User:ANONYMOUS until something else is proved
    certificates    what a TLS listener shows and whom it trusts; read again when a file changes
    stream          TLS between the bytes of a socket and those of the protocol, without waiting
    login           the SASL exchange of one connection, mechanism by mechanism

Nothing here names a class to load, and no secret is in any message.
"""
