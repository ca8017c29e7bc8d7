"""Who may do what: access control lists and the authorizer that judges by them.

What each API needs is in `handlers/gates`; where the lists are kept, in `cluster/acl_store.py`.
"""
