"""What the compute API keeps for the whole fleet: flavors, key pairs, quotas, server groups, aggregates."""
