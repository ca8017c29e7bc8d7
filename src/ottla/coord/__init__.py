"""Coordinators: groups, offsets and transactions, kept in internal topics. `machine.py` is the contract."""
