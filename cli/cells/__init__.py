"""`fleetlight cell`, `host` and `database`: which cells there are, and what they run on."""
