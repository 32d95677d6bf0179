"""The agent of a host, which answers calls over HTTPS and carries them out by a driver.

It needs neither databases nor buses, so this package imports nothing of ours but `notifications`. The callers of
agents, with the cache of their answers, are in fleetlight.manager.operations.nodes.
"""
