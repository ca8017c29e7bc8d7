"""Authentication and authorization of clients.

    principal       who a connection belongs to; User:ANONYMOUS until the client is authenticated
    certificates    the certificate and the trust store of a TLS listener; reloaded when a file changes
    stream          TLS between the bytes of a socket and those of the protocol, without blocking
    login           the SASL exchange of one connection, mechanism by mechanism
    acl             access control lists, and `authorizer`, which decides by them

No option here names a class to load, and no message contains a secret. The permissions that each API needs are in
`handlers/gates`; ACLs are stored by `cluster/acl_store.py`.
"""
