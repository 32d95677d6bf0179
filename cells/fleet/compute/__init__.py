"""State of the compute API for the whole fleet: flavors, key pairs, quotas, server groups, aggregates."""
