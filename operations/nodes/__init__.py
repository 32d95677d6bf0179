"""Calls of the nodes of a cell that have an agent, and the cache of their state."""
