"""`fleetlight cell`, `host` and `database`: the cells of the fleet, their hosts and their databases."""
