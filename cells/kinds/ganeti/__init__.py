"""A cell that is a real Ganeti cluster, read over its remote API."""
