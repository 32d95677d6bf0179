"""The agent of a host, which answers calls over HTTPS and does the work by a driver.

It needs neither databases nor buses, so this package imports nothing of ours but `notifications`. What calls agents,
and remembers what they said, is fleetlight.manager.operations.nodes.
"""
