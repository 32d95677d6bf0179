"""What belongs to the whole fleet: which cells there are, flavors, key pairs, quotas, server groups, locks on it."""
