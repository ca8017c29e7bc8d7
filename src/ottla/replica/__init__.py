"""The replicas that this broker holds: leaders, followers, in-sync sets, and the fetches that wait for records.

The controller decides who leads (`cluster/control/`). The bytes of a replica are in its log (`log/`).
"""
