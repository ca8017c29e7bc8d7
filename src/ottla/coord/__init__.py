"""Coordinators of groups, offsets and transactions, with their state in internal topics.

machine.py      the contract: a machine holds the state of one partition and makes decisions, without side effects
runtime.py      loads machines, appends and applies what they decide, replies, runs their timers
coordinator.py  an internal topic with its runtime: created on first use, follows leader changes of its partitions
formats.py      the records of both internal topics
patterns.py     regular expressions that clients send

groups/ and transactions/ hold the two machines. Their request handlers are in `handlers/`.
"""
