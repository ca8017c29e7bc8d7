"""The replicas on this broker: leaders, followers, in-sync sets, and the fetches that wait for records.

The controller elects the leaders (`cluster/control/`). The data of a replica is in its log (`log/`).
"""
