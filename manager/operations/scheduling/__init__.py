"""The choice of a cell, and of a host in it, for instances."""
