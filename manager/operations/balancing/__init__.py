"""The balance of a cluster of nodes, moves that improve it, and its remaining capacity; all pure functions."""
