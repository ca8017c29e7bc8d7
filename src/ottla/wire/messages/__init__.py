"""Declarations of all messages, a file per family of APIs. The top of each file says what each version changed.

A file is imported with the first request that uses it; `wire/apis.py` has the list.
"""
