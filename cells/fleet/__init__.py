"""State of the whole fleet: its cells, flavors, key pairs, quotas, server groups, and locks."""
