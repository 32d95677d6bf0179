"""The feed of changes, `/fleetlight/changes`: the changes of items that match a filter, in order, for programs that
keep a copy.
"""
