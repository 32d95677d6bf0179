"""Stores of the state of nodes: a server that the processes of a cell share, or none."""
