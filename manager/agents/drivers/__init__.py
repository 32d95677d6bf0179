"""Drivers of agents, one for each kind of host."""
