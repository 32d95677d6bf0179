"""The feed of changes, `/fleetlight/changes`: what changes in the items that a filter lets pass, in order, for programs
that keep a copy.
"""
