"""Coordinators of groups, offsets and transactions, with their state in internal topics.

machine.py      the contract: a machine decides, pure, and holds the state of one partition
runtime.py      loads machines, appends and applies what they decide, replies, keeps their timers
coordinator.py  an internal topic with its runtime: created on first use, follows who leads its partitions
formats.py      the records of both internal topics
patterns.py     regular expressions that clients send

groups/ and transactions/ are the two machines. The handlers of their requests are in `handlers/`.
"""
